// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"log/slog"

	"github.com/goverbs/goverbs/internal/show"
)

// Requests and completions hold only numbers, so printing them is safe. The text uses C's field
// names, shows keys and addresses in hexadecimal, and has only the fields that the opcode uses.
// encoding/json writes the fields as they are.

func (s SGE) facts() show.Facts {
	return show.Of("SGE", show.Hex("addr", s.Addr), slog.Uint64("length", uint64(s.Length)), show.Hex("lkey", s.LKey))
}

// sgList returns the attributes of a list of SGEs.
func sgList(sgl []SGE) []slog.Attr {
	var bytes uint64
	var where []string
	for _, s := range sgl {
		bytes += uint64(s.Length)
		where = append(where, s.String())
	}
	attrs := []slog.Attr{slog.Int("num_sge", len(sgl)), slog.Uint64("length", bytes)}
	if len(where) > 0 {
		attrs = append(attrs, slog.Any("sg_list", where))
	}
	return attrs
}

func (wr SendWR) facts() show.Facts {
	f := show.Of("SendWR", slog.Uint64("wr_id", wr.ID), show.Text("opcode", wr.Opcode),
		show.Text("send_flags", wr.Flags))
	f = f.And(sgList(wr.SGL)...)
	switch wr.Opcode {
	case WRRDMAWrite, WRRDMAWriteWithImm, WRRDMARead, WRAtomicFetchAndAdd, WRAtomicCmpAndSwp, WRMaskedAtomicFetchAndAdd,
		WRMaskedAtomicCmpAndSwp,
		WRAtomicWrite:
		f = f.And(show.Hex("remote_addr", wr.RemoteAddr), show.Hex("rkey", wr.RKey))
	case WRSendWithInv, WRLocalInv:
		f = f.And(show.Hex("invalidate_rkey", wr.InvalidateRKey))
	case WRImmData:
		f = f.And(show.Hex("imm64", wr.Imm64))
	case WRBindMW:
		f = f.And(show.Hex("rkey", wr.RKey))
		if wr.Bind != nil {
			f = f.And(slog.Any("bind", *wr.Bind))
		}
	}
	switch wr.Opcode {
	case WRRDMAWriteWithImm, WRSendWithImm:
		f = f.And(show.Hex("imm_data", wr.Imm))
	case WRAtomicFetchAndAdd:
		f = f.And(show.Hex("add", wr.Add))
	case WRMaskedAtomicFetchAndAdd:
		f = f.And(show.Hex("add", wr.Add), show.Hex("add_mask", wr.AddMask))
	case WRAtomicCmpAndSwp:
		f = f.And(show.Hex("compare", wr.Compare), show.Hex("swap", wr.Swap))
	case WRAtomicWrite:
		f = f.And(show.Hex("swap", wr.Swap))
	case WRMaskedAtomicCmpAndSwp:
		f = f.And(show.Hex("compare", wr.Compare), show.Hex("compare_mask", wr.CompareMask), show.Hex("swap", wr.Swap),
			show.Hex("swap_mask", wr.SwapMask))
	}
	if wr.UD != nil {
		f = f.And(slog.Any("ud", *wr.UD))
	}
	return f
}

func (wr RecvWR) facts() show.Facts {
	return show.Of("RecvWR", slog.Uint64("wr_id", wr.ID)).And(sgList(wr.SGL)...)
}

func (b MWBind) facts() show.Facts {
	return show.Of("MWBind", slog.Any("mw", b.MW), slog.Any("mr", b.MR), show.Hex("addr", b.Addr),
		slog.Uint64("length", b.Length), show.Text("access", b.Access))
}

func (d UDDest) facts() show.Facts {
	return show.Of("UDDest", slog.Any("ah", d.AH), show.Hex("remote_qpn", d.RemoteQPN),
		show.Hex("remote_qkey", d.RemoteQKey))
}

func (wc WC) facts() show.Facts {
	f := show.Of("WC", slog.Uint64("wr_id", wc.ID), show.Text("status", wc.Status),
		slog.Uint64("qp_num", uint64(wc.QPNum)))
	if wc.Status != WCSuccess {
		return f.And(show.Hex("vendor_err", wc.VendorErr))
	}
	f = f.And(show.Text("opcode", wc.Opcode), slog.Uint64("byte_len", uint64(wc.ByteLen)),
		show.Text("wc_flags", wc.Flags))
	if wc.Flags&WCWithImm != 0 {
		f = f.And(show.Hex("imm64", wc.Imm64))
	}
	if wc.Flags&WCWithInv != 0 {
		f = f.And(show.Hex("invalidated_rkey", wc.InvalidatedRKey))
	}
	if wc.SrcQP != 0 {
		f = f.And(slog.Uint64("src_qp", uint64(wc.SrcQP)))
	}
	return f
}

func (e AsyncEvent) facts() show.Facts {
	f := show.Of("AsyncEvent", show.Text("event_type", e.Type)).As(e.text())
	if e.QP != nil {
		f = f.And(slog.Any("qp", e.QP))
	}
	if e.CQ != nil {
		f = f.And(slog.Any("cq", e.CQ))
	}
	if e.SRQ != nil {
		f = f.And(slog.Any("srq", e.SRQ))
	}
	if e.Port != 0 {
		f = f.And(slog.Int("port", e.Port))
	}
	if e.Err != nil {
		f = f.And(slog.String("err", e.Err.Error()))
	}
	return f
}

// String shows the SGE in one line.
func (s SGE) String() string { return s.facts().String() }

// LogValue implements slog.LogValuer.
func (s SGE) LogValue() slog.Value { return s.facts().LogValue() }

// String shows the SendWR in one line.
func (wr SendWR) String() string { return wr.facts().String() }

// LogValue implements slog.LogValuer.
func (wr SendWR) LogValue() slog.Value { return wr.facts().LogValue() }

// String shows the RecvWR in one line.
func (wr RecvWR) String() string { return wr.facts().String() }

// LogValue implements slog.LogValuer.
func (wr RecvWR) LogValue() slog.Value { return wr.facts().LogValue() }

// String shows the MWBind in one line.
func (b MWBind) String() string { return b.facts().String() }

// LogValue implements slog.LogValuer.
func (b MWBind) LogValue() slog.Value { return b.facts().LogValue() }

// String shows the UDDest in one line.
func (d UDDest) String() string { return d.facts().String() }

// LogValue implements slog.LogValuer.
func (d UDDest) LogValue() slog.Value { return d.facts().LogValue() }

// String shows the WC in one line.
func (wc WC) String() string { return wc.facts().String() }

// LogValue implements slog.LogValuer.
func (wc WC) LogValue() slog.Value { return wc.facts().LogValue() }

// String describes the event in one line.
func (e AsyncEvent) String() string { return e.facts().String() }

// LogValue implements slog.LogValuer.
func (e AsyncEvent) LogValue() slog.Value { return e.facts().LogValue() }

// MarshalJSON implements json.Marshaler; the error is written as its text.
func (e AsyncEvent) MarshalJSON() ([]byte, error) { return e.facts().MarshalJSON() }
