// SPDX-License-Identifier: BSD-3-Clause

package rsocket

// sendQueue tracks the requests in the send queue. They complete in posting order, and a completion
// frees all requests posted before it.
type sendQueue struct {
	depth   int
	free    int // places for requests
	records []sendRecord
	first   int
	count   int
	wrs     int // requests after the last signalled one
	bytes   int // and their bytes of the send buffer
}

// sendRecord is one message, which takes one or two requests.
type sendRecord struct {
	bytes    uint32 // of the send buffer
	wrs      uint8
	signaled bool
}

func (q *sendQueue) init(depth int) {
	*q = sendQueue{depth: depth, free: depth, records: make([]sendRecord, depth)}
}

// next returns the number of the next record, which is also that of its slot.
func (q *sendQueue) next() int { return (q.first + q.count) % q.depth }

// push records a posted message and reports whether it must be signalled: at most a quarter of the
// queue and of the buffer may follow the last signalled request.
func (q *sendQueue) push(wrs, bytes, buffer int, force bool) (signaled bool) {
	q.wrs += wrs
	q.bytes += bytes
	signaled = force || q.wrs > q.depth/4 || q.bytes > buffer/4
	if signaled {
		q.wrs, q.bytes = 0, 0
	}
	q.records[q.next()] = sendRecord{uint32(bytes), uint8(wrs), signaled}
	q.count++
	q.free -= wrs
	return signaled
}

// pop records a completion and returns how many bytes of the buffer it frees.
func (q *sendQueue) pop() (bytes int) {
	for q.count > 0 {
		r := q.records[q.first]
		q.first = (q.first + 1) % q.depth
		q.count--
		q.free += int(r.wrs)
		bytes += int(r.bytes)
		if r.signaled {
			break
		}
	}
	return bytes
}
