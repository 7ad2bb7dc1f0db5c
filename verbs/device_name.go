// SPDX-License-Identifier: BSD-3-Clause

package verbs

import (
	"fmt"
	"strings"
	"sync"
)

// makers create devices on demand, when a program asks for them by name.
var makers struct {
	sync.Mutex
	byPrefix map[string]func(name string) (*Device, error)
	busy     map[string]chan struct{} // names whose device is being created; closed when done
}

// RegisterMaker makes [DeviceByName] call m for names that begin with prefix, if no such device
// exists yet. Packages call it from an init function. The longest matching prefix wins. m returns
// an unregistered device of that name, or [ErrNoDevice] for a name that it does not know. It may
// call DeviceByName for another name. RegisterMaker panics if prefix is empty or already has a
// maker, or if m is nil: these are programming errors.
func RegisterMaker(prefix string, m func(name string) (*Device, error)) {
	makers.Lock()
	defer makers.Unlock()
	if prefix == "" || m == nil || makers.byPrefix[prefix] != nil {
		panic(fmt.Sprintf("verbs: RegisterMaker: prefix %q is empty or taken, or its maker is nil", prefix))
	}
	if makers.byPrefix == nil {
		makers.byPrefix = make(map[string]func(string) (*Device, error))
	}
	makers.byPrefix[prefix] = m
}

// makerOf returns the maker for a name, or nil.
func makerOf(name string) (m func(name string) (*Device, error)) {
	makers.Lock()
	defer makers.Unlock()
	longest := 0
	for prefix, candidate := range makers.byPrefix {
		if len(prefix) > longest && strings.HasPrefix(name, prefix) {
			m, longest = candidate, len(prefix)
		}
	}
	return m
}

// DeviceByName returns the device with this name: one that [Devices] lists, or one that a package
// creates on demand. A program imports these packages for their side effects:
//
//	import _ "github.com/goverbs/goverbs/usiw"            // usiw0, usiw0-plain
//	import _ "github.com/goverbs/goverbs/compat/ibcompat" // ib:NAME, over every device NAME
//
// Devices lists the new device from then on, and DeviceByName returns the same one again. The
// device belongs to the process: it need not be closed, and runs no goroutine while it has no open
// objects. A program that checks for leaked objects calls [Device.CloseShared] first.
//
// If there is no such device, the error Is [ErrNoDevice]. It lists the devices that exist, and
// names the missing import if one of the packages above would create the device.
func DeviceByName(name string) (*Device, error) {
	d, missing := present(name)
	if d != nil {
		return d, nil
	}
	m := makerOf(name)
	if m == nil {
		return nil, opError("DeviceByName", "", missing)
	}
	defer lockName(name)()
	if d, missing = present(name); d != nil { // created by a concurrent call
		return d, nil
	}
	d, err := m(name)
	switch {
	case err == ErrNoDevice: // returned bare: the maker does not know the name
		err = missing
	case err == nil && d.Name() != name:
		err = invalid("the maker of %q has made %q", name, d.Name())
	case err == nil:
		d.made = true
		err = register(d)
	}
	if err != nil {
		return nil, opError("DeviceByName", "", err)
	}
	return d, nil
}

// lockName serializes calls for one name. Calls for different names run concurrently, because a
// maker may ask for the device below its own.
func lockName(name string) (unlock func()) {
	makers.Lock()
	defer makers.Unlock()
	for makers.busy[name] != nil {
		wait := makers.busy[name]
		makers.Unlock()
		<-wait
		makers.Lock()
	}
	if makers.busy == nil {
		makers.busy = make(map[string]chan struct{})
	}
	done := make(chan struct{})
	makers.busy[name] = done
	return func() {
		makers.Lock()
		defer makers.Unlock()
		delete(makers.busy, name)
		close(done)
	}
}

// present returns the device with this name among those that Devices lists, or the reason why there
// is none. It finds a registered device even if kernel devices cannot be listed.
func present(name string) (*Device, error) {
	registry.Lock()
	d := byName(registry.devices, name)
	registry.Unlock()
	if d != nil {
		return d, nil
	}
	devices, err := Devices()
	if err != nil {
		return nil, err
	}
	if d := byName(devices, name); d != nil {
		return d, nil
	}
	text := "none is present"
	if len(devices) > 0 {
		names := make([]string, len(devices))
		for i, d := range devices {
			names[i] = d.Name()
		}
		text = "present: " + strings.Join(names, ", ")
	}
	return nil, fmt.Errorf("%w named %q (%s%s)", ErrNoDevice, name, text, whoMakes(name))
}

// whoMakes returns a hint: the package of this module that creates devices with this prefix.
func whoMakes(name string) string {
	for _, p := range []struct{ prefix, path, makes string }{
		{"usiw", "usiw", "usiw0 and usiw0-plain"},
		{"ib:", "compat/ibcompat", "ib:NAME over each device NAME"},
	} {
		switch {
		case !strings.HasPrefix(name, p.prefix):
		case makerOf(name) != nil:
			return fmt.Sprintf("; package %s makes %s", p.path, p.makes)
		default:
			return fmt.Sprintf("; import _ %q makes %s", "github.com/goverbs/goverbs/"+p.path, p.makes)
		}
	}
	return ""
}
