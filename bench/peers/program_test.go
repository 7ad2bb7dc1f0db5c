// SPDX-License-Identifier: BSD-3-Clause

package main

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const perftestTable = ` remote address: LID 0000 QPN 0x402e82 PSN 0x85ea79
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec] 
 2       20000          6.37           179.97       6.90               1.00           -nan           10.27                  17.90
 64      20000          6.37           179.97       6.90               %s           -nan           10.27                  17.90
---------------------------------------------------------------------------------------
`

func TestPerftestFigure(t *testing.T) {
	f, err := perftestFigure(fmt.Sprintf(perftestTable, "7.12"), 64, perftestMean)
	require.NoError(t, err)
	require.InDelta(t, 7.12, f, 1e-9)
	f, err = perftestFigure(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"+
		" 65536      20000            4935.32            847.41 \t\t   0.013559\n", 65536, perftestRate)
	require.NoError(t, err)
	require.InDelta(t, 847.41, f, 1e-9)
	for _, none := range []string{"inf", "-nan", "0.00"} {
		_, err = perftestFigure(fmt.Sprintf(perftestTable, none), 64, perftestMean)
		require.ErrorIs(t, err, errClock, none)
	}
	_, err = perftestFigure(fmt.Sprintf(perftestTable, "fast"), 64, perftestMean)
	require.ErrorContains(t, err, "fast")
	_, err = perftestFigure(fmt.Sprintf(perftestTable, "7.12"), 65, perftestMean)
	require.EqualError(t, err, "no row of 65 bytes")
}

func TestQperfFigure(t *testing.T) {
	for out, want := range map[string]float64{"7.12 us": 7.12, "712 ns": 0.712, "1.5 ms": 1500, "2 sec": 2e6} {
		f, err := qperfFigure("tcp_lat:\n    latency  =  " + out + "\n")
		require.NoError(t, err)
		require.InDelta(t, want, f, 1e-9)
	}
	for _, wrong := range []string{"", "latency = 3 hours", "bw  =  7 us"} {
		_, err := qperfFigure(wrong)
		require.Error(t, err, wrong)
	}
}

// TestPerftestAgain: known failures of perftest are retried, others are not.
func TestPerftestAgain(t *testing.T) {
	race, other := errors.New("exit status 1: RDMA_CM_EVENT_REJECTED"), errors.New("exit status 1: no device")
	refused := errors.New("exit status 1: ERRNO: Connection refused")
	clock := fmt.Errorf("ib_send_lat: %w", errClock)
	for _, c := range []struct {
		errs  []error // of the runs
		tries int
		err   error
	}{
		{[]error{nil}, 1, nil},
		{[]error{clock, nil}, 2, nil},
		{[]error{race, refused, clock, nil}, 4, nil},
		{[]error{clock, clock, clock, clock, nil}, perftestTries, clock},
		{[]error{other, nil}, 1, other},
		{[]error{race, other, nil}, 2, other},
	} {
		var tries int
		f, used, err := perftestAgain(func() (figure, time.Duration, error) {
			tries++
			return figure(tries), time.Duration(tries), c.errs[tries-1]
		})
		require.Equal(t, c.err, err)
		require.Equal(t, c.tries, tries)
		require.EqualValues(t, tries, f)
		require.EqualValues(t, tries, used)
	}
}
