// SPDX-License-Identifier: BSD-3-Clause

//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/internal/kerneltest"
)

const (
	parentClients = 3
	children      = 2
	settling      = time.Minute // how long the kernel may take to free the objects of exited processes
)

// parentVariable makes a process the parent.
const parentVariable = "GOVERBS_SOAK_PARENT"

// supervise runs the parent, then checks what is left in the kernel. It opens no device itself,
// because librdmacm keeps contexts open until the process exits.
func supervise(duration time.Duration, seed uint64, devices string) error {
	kernel, err := kerneltest.Look()
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "-duration", duration.String(), "-seed", strconv.FormatUint(seed, 10),
		"-devices", devices)
	cmd.Env = append(os.Environ(), parentVariable+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("the parent: %w", err)
	}
	return errors.Join(err, kernel.Unharmed(settling))
}

// parent runs the soak and checks what is left of it in this process.
func parent(duration time.Duration, seed uint64, names []string) error {
	before := measure()
	usage, err := run(duration, seed, names)
	if err != nil {
		return err
	}
	after := settled(before)
	fmt.Printf("soak: at first %v, when everything was closed %v\n", before, after)
	return errors.Join(usage.judge(), after.judgeEnd(before))
}

// run performs the soak. If it returns without error, everything is closed.
func run(duration time.Duration, seed uint64, names []string) (*usage, error) {
	p, err := open(names)
	if err != nil {
		return nil, err
	}
	for _, d := range p.devices {
		d.peers = []*peer{{address: d.node.Addr()}}
	}
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	p.start(seed, parentClients)
	usage := new(usage)
	kills, err := p.disturb(duration, rng, usage)
	for _, d := range p.devices {
		fmt.Printf("soak: %s: %v\n", d.name, d.counts)
	}
	fmt.Printf("soak: %d processes killed\n", kills)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.failed:
		return nil, p.failure
	default:
	}
	return usage, p.close()
}

// disturb starts and kills children until the time has expired and there are enough samples, or
// until something fails. Then it stops the clients.
func (p *process) disturb(duration time.Duration, rng *rand.Rand, usage *usage) (kills int, err error) {
	var alive []*offspring
	end := time.After(duration)
	sample := time.NewTicker(min(duration/50, 5*time.Second))
	defer sample.Stop()
	timeUp, running := false, true
	for running && err == nil {
		for len(alive) < children && err == nil {
			var o *offspring
			if o, err = p.startChild(rng.Uint64()); err == nil {
				alive = append(alive, o)
			}
		}
		next := time.After(time.Duration(1+rng.IntN(5)) * time.Second)
		for waiting := true; waiting && err == nil; {
			select {
			case <-sample.C:
				usage.add(measure())
			case <-next:
				i := rng.IntN(len(alive))
				err = p.kill(alive[i])
				alive = append(alive[:i], alive[i+1:]...)
				kills++
				waiting = false
			case <-p.failed:
				err = p.failure
			case <-end:
				timeUp = true
			}
			if timeUp && len(usage.samples) >= leastSamples { // a slow machine takes longer for them
				running, waiting = false, false
			}
		}
	}
	if err != nil {
		for _, o := range alive {
			_ = p.kill(o)
		}
		return kills, err
	}
	for _, o := range alive {
		err = errors.Join(err, p.dismiss(o))
	}
	return kills, errors.Join(err, p.halt())
}
