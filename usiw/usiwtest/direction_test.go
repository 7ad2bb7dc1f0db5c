// SPDX-License-Identifier: BSD-3-Clause

package usiwtest_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goverbs/goverbs/usiw/usiwtest"
)

func TestOnDial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := usiwtest.NewWire()
		var seen []*usiwtest.Link
		w.OnDial = func(l *usiwtest.Link) {
			seen = append(seen, l)
			l.ToListener.Corrupt(0, 1)
		}
		a, b, link := ends(t, w)
		require.Equal(t, []*usiwtest.Link{link}, seen)
		require.Equal(t, w.Links(), seen)
		write(t, a, "b")
		require.Equal(t, "c", read(t, b, 1))
	})
}

func TestCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, link := ends(t, usiwtest.NewWire())
		write(t, a, "lost")
		done := make(chan error, 1)
		go func() { _, err := once(a); done <- err }()
		synctest.Wait()
		link.Cut()
		require.Error(t, <-done)
		isReset(t, a)
		isReset(t, b)
		link.Cut()
		require.NoError(t, a.Close())
	})
}

func TestCutAt(t *testing.T) {
	const text = "0123456789"
	for off := range len(text) + 1 {
		for _, late := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				a, b, link := ends(t, usiwtest.NewWire())
				if !late {
					link.ToListener.CutAt(int64(off))
				}
				if off > 0 || late {
					write(t, a, text)
					require.Equal(t, text[:off], read(t, b, off))
				}
				link.ToListener.CutAt(int64(off))
				isReset(t, a)
				isReset(t, b)
			})
		}
	}
	bubble(t, func(t *testing.T) {
		t.Log("before an offset that was not reached nothing happens; one that has passed is now")
		a, b, link := ends(t, usiwtest.NewWire())
		link.ToListener.CutAt(11)
		write(t, a, text)
		require.Equal(t, text, read(t, b, 10))
		write(t, b, text)
		require.Equal(t, text, read(t, a, 10))
		link.ToListener.CutAt(3)
		isReset(t, a)
	})
}

func TestEndAt(t *testing.T) {
	const text = "0123456789"
	for off := range len(text) + 1 {
		bubble(t, func(t *testing.T) {
			a, b, link := ends(t, usiwtest.NewWire())
			link.ToListener.EndAt(int64(off))
			write(t, a, text)
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.Equal(t, text[:off], string(got))
			write(t, a, strings.Repeat("the sender does not notice", 10_000))
			write(t, b, "the other way goes on")
			require.Equal(t, "the other way goes on", read(t, a, 21))
			require.NoError(t, b.CloseWrite())
			_, err = once(a)
			require.Equal(t, io.EOF, err)
		})
	}
	bubble(t, func(t *testing.T) {
		t.Log("now")
		a, b, link := ends(t, usiwtest.NewWire())
		write(t, a, text)
		link.ToListener.EndAt(link.ToListener.Written())
		write(t, a, text)
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	})
	bubble(t, func(t *testing.T) {
		t.Log("a writer that waits for room is let go")
		w := usiwtest.NewWire()
		w.Buffer = 4
		a, b, link := ends(t, w)
		link.ToListener.EndAt(6)
		go func() { _, _ = a.Write([]byte(text)) }()
		require.Equal(t, text[:6], read(t, b, 6))
		synctest.Wait()
		require.EqualValues(t, 10, link.ToListener.Written())
	})
}

func TestCorrupt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, link := ends(t, usiwtest.NewWire())
		link.ToListener.Corrupt(2, 0x01)
		link.ToListener.Corrupt(5, 0x80)
		link.ToListener.Corrupt(5, 0x01)
		link.ToListener.Corrupt(7, 0x01)
		link.ToListener.Corrupt(7, 0x01)
		write(t, a, "0123")
		write(t, a, "456789")
		require.Equal(t, "01334\xb46789", read(t, b, 10))
		link.ToListener.Corrupt(9, 0x01)
		write(t, a, "0")
		require.Equal(t, "0", read(t, b, 1), "what has been read does not change")
		write(t, b, "0123456789")
		require.Equal(t, "0123456789", read(t, a, 10), "the other direction")
	})
}

func TestInsert(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, link := ends(t, usiwtest.NewWire())
		in := []byte("<0>")
		link.ToListener.Insert(0, in)
		copy(in, "xxx")
		require.Equal(t, "<0>", read(t, b, 3), "it is a copy, and waits for nothing")
		link.ToListener.Insert(4, []byte("<4b>"))
		link.ToListener.Insert(2, []byte("<2>"))
		link.ToListener.Insert(4, []byte("<4c>"))
		link.ToListener.Corrupt(4, 0x01)
		write(t, a, "0123456789")
		require.EqualValues(t, 10, link.ToListener.Written(), "what is inserted does not count")
		require.Equal(t, "01<2>23<4b><4c>556789", read(t, b, 21))
		link.ToListener.Insert(3, []byte("late"))
		require.Equal(t, "late", read(t, b, 4))

		t.Log("the end comes behind")
		link.ToListener.Insert(12, []byte("before"))
		link.ToListener.EndAt(12)
		write(t, a, "0123")
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "01before", string(got))
	})
}

func TestSplit(t *testing.T) {
	for _, n := range []int{1, 3} {
		bubble(t, func(t *testing.T) {
			a, b, link := ends(t, usiwtest.NewWire())
			link.ToListener.Split(n)
			write(t, a, "0123456789")
			for i := 0; i < 9; i += n {
				s, err := once(b)
				require.NoError(t, err)
				require.Equal(t, "0123456789"[i:i+n], s)
			}
			write(t, a, "0123456789")
			link.ToListener.Split(0)
			s, err := once(b)
			require.NoError(t, err)
			require.Equal(t, "90123456789", s, "all that is there, of several writes")
		})
	}
}

func TestDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, link := ends(t, usiwtest.NewWire())
		began := time.Now()
		at := func(want time.Duration) {
			t.Helper()
			require.Equal(t, want, time.Since(began))
		}
		link.ToListener.Delay(time.Second)
		write(t, a, "one")
		link.ToListener.Delay(0)
		write(t, a, "two")
		write(t, b, "back")
		require.Equal(t, "back", read(t, a, 4))
		at(0)
		require.Equal(t, "onetwo", read(t, b, 6))
		at(time.Second)

		link.ToListener.Delay(time.Minute)
		write(t, a, "end")
		require.NoError(t, a.CloseWrite())
		require.Equal(t, "end", read(t, b, 3))
		_, err := once(b)
		require.Equal(t, io.EOF, err)
		at(time.Second + time.Minute)

		t.Log("the buffer counts what is under way")
		require.NoError(t, b.CloseWrite())
		a, b, link = ends(t, usiwtest.NewWire())
		began = time.Now()
		link.ToListener.Delay(time.Second)
		go func() { _, _ = a.Write(make([]byte, 3*usiwtest.DefaultBuffer)) }()
		read(t, b, 3*usiwtest.DefaultBuffer)
		at(3 * time.Second)

		t.Log("a cut does not wait")
		write(t, a, "lost")
		link.Cut()
		isReset(t, b)
		at(3 * time.Second)
	})
}

func TestStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b, link := ends(t, usiwtest.NewWire())
		write(t, a, "before")
		link.ToListener.Stall()
		write(t, a, "after")
		link.ToListener.Insert(0, []byte("too"))
		require.NoError(t, a.CloseWrite())
		quiet(t, b)
		write(t, b, "the other way goes on")
		require.Equal(t, "the other way goes on", read(t, a, 21))
		link.ToListener.Resume()
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "toobeforeafter", string(got))
	})
	bubble(t, func(t *testing.T) {
		t.Log("the writer waits when the buffer is full")
		a, b, link := ends(t, usiwtest.NewWire())
		link.ToListener.Stall()
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Hour)))
		n, err := a.Write(make([]byte, 2*usiwtest.DefaultBuffer))
		require.Error(t, err)
		require.Equal(t, usiwtest.DefaultBuffer, n)
		link.ToListener.Resume()
		read(t, b, n)
	})
}
