// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The service, which protoc would generate from
//
//	service Echo {
//	  // Say returns the same text.
//	  rpc Say(google.protobuf.StringValue) returns (google.protobuf.StringValue);
//	  // Count returns the numbers from 1 to a limit.
//	  rpc Count(google.protobuf.Int64Value) returns (stream google.protobuf.StringValue);
//	}
const (
	methodSay   = "/goverbs.example.Echo/Say"
	methodCount = "/goverbs.example.Echo/Count"
)

var service = grpc.ServiceDesc{
	ServiceName: "goverbs.example.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(_ any, ctx context.Context, decode func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		text := new(wrapperspb.StringValue)
		if err := decode(text); err != nil {
			return nil, err
		}
		return text, ctx.Err()
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Count", ServerStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			limit := new(wrapperspb.Int64Value)
			if err := stream.RecvMsg(limit); err != nil {
				return err
			}
			return count(stream, limit.Value)
		}}},
}

// count sends the numbers from 1 to limit, until the client ends the call.
func count(stream grpc.ServerStream, limit int64) error {
	for i := int64(1); i <= limit; i++ {
		if err := stream.SendMsg(wrapperspb.String(fmt.Sprint(i))); err != nil {
			return err
		}
	}
	return nil
}

// say calls Say.
func say(ctx context.Context, conn *grpc.ClientConn, text string) (string, error) {
	answer := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, methodSay, wrapperspb.String(text), answer)
	return answer.Value, err
}

// countTo calls Count, and calls each with every number. It ends at io.EOF or the first error.
func countTo(ctx context.Context, conn *grpc.ClientConn, limit int64, each func(number string)) error {
	stream, err := conn.NewStream(ctx, &service.Streams[0], methodCount)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(wrapperspb.Int64(limit)); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		number := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(number); err != nil {
			return err
		}
		each(number.Value)
	}
}
