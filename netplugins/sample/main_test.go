package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"kurma.io/stager/netplugins/plugin"
)

const config = `{"name": "sample", "containerInterface": "eth1", "subnet": "10.99.0.0/24"}`

// newNamespace returns the path of a network namespace of the test's own, in which prepare has been run.
func newNamespace(t *testing.T, prepare func() error) string {
	t.Helper()
	path := make(chan string, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		err := unix.Unshare(unix.CLONE_NEWNET)
		var file *os.File
		if err == nil {
			file, err = os.Open("/proc/thread-self/ns/net")
		}
		if err == nil {
			err = prepare()
		}
		if err != nil {
			failed <- err
			return
		}
		t.Cleanup(func() { _ = file.Close() })
		path <- fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	}()
	select {
	case err := <-failed:
		t.Fatal(err)
		return ""
	case p := <-path:
		return p
	}
}

// otherNetwork makes a link with the default route, as another plugin does that has connected the pod before.
func otherNetwork() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	return errors.Join(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer"}), plugin.Configure("eth0", &plugin.IP{
		IP: "10.1.0.2/24", Routes: []plugin.Route{{Dst: "0.0.0.0/0", GW: "10.1.0.1"}},
	}))
}

func TestTheDefaultRouteIsThatOfTheFirstNetwork(t *testing.T) {
	for name, tt := range map[string]struct {
		before  func() error
		gateway string // of the default route
	}{
		"the first network":  {func() error { return nil }, "10.99.0.1"},
		"the second network": {otherNetwork, "10.1.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			host := plugin.Pod{Namespace: newNamespace(t, func() error { return nil })}
			pod := plugin.Pod{Namespace: newNamespace(t, tt.before), UUID: "b6ef0496-103d-4685-b937-ac97bc570ac3", Interface: "eth1"}
			p := sample{plugin.Addresses{Dir: filepath.Join(t.TempDir(), "addresses")}}
			var result *plugin.Result
			if err := host.In(func() (err error) { result, err = p.Add(t.Context(), []byte(config), pod); return err }); err != nil {
				t.Fatal(err)
			}
			var gateway string
			if err := pod.In(func() error {
				routes, err := netlink.RouteGet([]byte{192, 0, 2, 1})
				if err == nil {
					gateway = routes[0].Gw.String()
				}
				return err
			}); err != nil || gateway != tt.gateway {
				t.Errorf("the default route is by %s, %v; want %s", gateway, err, tt.gateway)
			}
			if got := result.IP4.Routes[len(result.IP4.Routes)-1].GW == "10.99.0.1"; got != (tt.gateway == "10.99.0.1") {
				t.Errorf("the result has the routes %+v", result.IP4.Routes)
			}
			if err := host.In(func() error { return p.Del(t.Context(), []byte(config), pod) }); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAPodIsOnTwoNetworksOfThePlugin(t *testing.T) {
	nothing := func() error { return nil }
	host := plugin.Pod{Namespace: newNamespace(t, nothing)}
	pod := plugin.Pod{Namespace: newNamespace(t, nothing), UUID: "b6ef0496-103d-4685-b937-ac97bc570ac3"}
	links := func() (n int) {
		t.Helper()
		if err := host.In(func() error {
			all, err := netlink.LinkList()
			for _, l := range all {
				if l.Type() == "veth" {
					n++
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i, name := range []string{"eth0", "eth1"} {
		pod.Interface = name
		p := sample{plugin.Addresses{Dir: filepath.Join(t.TempDir(), "addresses")}}
		conf := fmt.Sprintf(`{"name": "sample%[1]d", "subnet": "10.99.%[1]d.0/24"}`, i)
		if err := host.In(func() error { _, err := p.Add(t.Context(), []byte(conf), pod); return err }); err != nil {
			t.Fatal(err)
		}
		if n := links(); n != i+1 {
			t.Errorf("the host has %d links, want %d", n, i+1)
		}
		defer func() {
			pod.Interface = name
			if err := host.In(func() error { return p.Del(t.Context(), []byte(conf), pod) }); err != nil {
				t.Error(err)
			}
			if n := links(); n != i {
				t.Errorf("after del of %s the host has %d links, want %d", name, n, i)
			}
		}()
	}
}
