// SPDX-License-Identifier: BSD-3-Clause

//go:build linux && cgo && !noibverbs

package verbs

// members are the QPs of a CQ.
type members[Q any] struct {
	byNum map[uint32]*Q
	num   uint32
	last  *Q // found last, by num
}

func (m *members[Q]) add(num uint32, q *Q) {
	if m.byNum == nil {
		m.byNum = make(map[uint32]*Q)
	}
	m.byNum[num], m.last = q, nil
}

func (m *members[Q]) remove(num uint32) {
	delete(m.byNum, num)
	m.last = nil
}

// find returns the QP of a number, nil if it is gone.
func (m *members[Q]) find(num uint32) *Q {
	if m.last == nil || m.num != num {
		m.num, m.last = num, m.byNum[num]
	}
	return m.last
}

func (m *members[Q]) all() []*Q {
	qs := make([]*Q, 0, len(m.byNum))
	for _, q := range m.byNum {
		qs = append(qs, q)
	}
	return qs
}
