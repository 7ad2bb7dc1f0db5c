// SPDX-License-Identifier: BSD-3-Clause

module github.com/goverbs/goverbs/examples/grpc-over-rdma

go 1.25.0

replace github.com/goverbs/goverbs => ../..

require (
	github.com/goverbs/goverbs v0.0.0
	google.golang.org/grpc v1.80.0
	google.golang.org/protobuf v1.36.11
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.55.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.37.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260120221211-b8f7ae30c516 // indirect
)
