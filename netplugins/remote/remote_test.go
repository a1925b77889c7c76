package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/netplugins/plugin"
)

func TestOrderOfCalls(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, map[string]any{
		"options": map[string]any{"mode": "l2"}, "capabilities": map[string]bool{"portMappings": true, "mac": true},
	})
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, setup(r, config), "Activate GetCapabilities") // again: CreateNetwork once
	result, err := r.Add(context.Background(), config, podNamed("pod-1"))
	f.must(t, err, callsOfAdd)
	text, _ := json.Marshal(result)
	if string(text) != `{"ip4":{"ip":"10.1.0.3/24","gateway":"10.1.0.1"}}` {
		t.Errorf("result %s", text)
	}
	f.must(t, del(r, config, "pod-1"), callsOfDel)
	f.must(t, del(r, config, "pod-1"), "")
	f.checkEmpty(t, 1)
	f.must(t, r.Remove(context.Background(), config), callsOfRemove)
	f.checkEmpty(t, 0)

	f.checkWire(t, "local")
}

// Each failure of an add is undone, as far as the driver has got.
func TestFailuresOfAPodRollBack(t *testing.T) {
	const undoneEndpoint, undoneJoin = " DeleteEndpoint", " Leave DeleteEndpoint"
	const undoneLink = " Leave detach:eth0:veth1 DeleteEndpoint"
	for _, tt := range []struct {
		name, method, answer string
		status               int
		calls, words         string
	}{
		{"Err of CreateEndpoint", "CreateEndpoint", `{"Err": "no room"}`, 200, "CreateEndpoint", "CreateEndpoint: no room"},
		{"500 of CreateEndpoint", "CreateEndpoint", `{"Err": "no room"}`, 500, "CreateEndpoint", "no room (HTTP status 500)"},
		{"redirection", "CreateEndpoint", "", 307, "CreateEndpoint", "HTTP status 307"},
		{"404 of CreateEndpoint", "CreateEndpoint", "404 page not found", 404, "CreateEndpoint", "404 page not found (HTTP status 404)"},
		{"garbage of CreateEndpoint", "CreateEndpoint", "hello", 200, "CreateEndpoint" + undoneEndpoint, "CreateEndpoint: read answer: invalid"},
		{"no answer", "CreateEndpoint", "drop", 200, "CreateEndpoint" + undoneEndpoint, "no answer"},
		{"too long an answer", "CreateEndpoint", strings.Repeat(" ", 2<<20) + "{}", 200, "CreateEndpoint" + undoneEndpoint, "longer than"},
		{"address that was given", "CreateEndpoint", `{"Interface": {"Address": "10.1.0.3/24"}}`, 200, "CreateEndpoint" + undoneEndpoint, "must not answer 10.1.0.3/24"},
		{"bad CIDR", "CreateEndpoint", `{"Interface": {"AddressIPv6": "fd00::1"}}`, 200, "CreateEndpoint" + undoneEndpoint, `AddressIPv6 "fd00::1"`},
		{"address of the other family", "CreateEndpoint", `{"Interface": {"AddressIPv6": "10.0.0.1/8"}}`, 200, "CreateEndpoint" + undoneEndpoint, "of the family"},
		{"bad MAC", "CreateEndpoint", `{"Interface": {"MacAddress": "x"}}`, 200, "CreateEndpoint" + undoneEndpoint, "MacAddress"},
		{"Err of Join", "Join", `{"Err": "not now"}`, 200, "CreateEndpoint Join" + undoneEndpoint, "Join: not now"},
		{"500 of Join", "Join", "oh", 500, "CreateEndpoint Join" + undoneEndpoint, "oh (HTTP status 500)"},
		{"garbage of Join", "Join", `{"InterfaceName": 7}`, 200, "CreateEndpoint Join" + undoneJoin, "Join: read answer"},
		{"no link", "Join", `{}`, 200, "CreateEndpoint Join" + undoneJoin, `SrcName ""`},
		{"bad link", "Join", `{"InterfaceName": {"SrcName": "../../x"}}`, 200, "CreateEndpoint Join" + undoneJoin, "SrcName"},
		{"bad gateway", "Join", `{"InterfaceName": {"SrcName": "v"}, "Gateway": "10.1.0.1/24"}`, 200, "CreateEndpoint Join" + undoneJoin, "Gateway"},
		{"bad route", "Join", `{"InterfaceName": {"SrcName": "v"}, "StaticRoutes": [{"Destination": "10.0.0.1"}]}`, 200, "CreateEndpoint Join" + undoneJoin, "StaticRoutes[0]: destination"},
		{"route without a next hop", "Join", `{"InterfaceName": {"SrcName": "v"}, "StaticRoutes": [{"Destination": "10.0.0.0/8"}]}`, 200, "CreateEndpoint Join" + undoneJoin, "NextHop"},
		{"route of another type", "Join", `{"InterfaceName": {"SrcName": "v"}, "StaticRoutes": [{"Destination": "10.0.0.0/8", "RouteType": 2}]}`, 200, "CreateEndpoint Join" + undoneJoin, "RouteType 2"},
		{"link that is not there", "", "", 0, "CreateEndpoint Join attach:veth1:eth0" + undoneLink, "no such link"},
		{"Err of ProgramExternalConnectivity", "ProgramExternalConnectivity", `{"Err": "port taken"}`, 200, callsToExpose + undoneLink, "port taken"},
		{"ProgramExternalConnectivity without an answer", "ProgramExternalConnectivity", "drop", 200, callsToExpose + " " + callsOfDel, "no answer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newDriver(t)
			r, config := f.newRemote(t), configWith(t, nil)
			f.must(t, setup(r, config), callsOfSetup)
			if tt.method == "" {
				r.links = fakeLinks{f, errors.New("no such link")}
			} else {
				f.set(tt.method, tt.answer, tt.status)
			}
			err := add(r, config, "pod-1")
			if got := f.take(); err == nil || got != tt.calls || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("error %v, want %s; calls\n%s, want\n%s", err, tt.words, got, tt.calls)
			}
			f.checkEmpty(t, 1)
		})
	}
}

func TestDriversWithoutExternalConnectivity(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.set("ProgramExternalConnectivity", "404 page not found", 404)
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	f.must(t, del(r, config, "pod-1"), strings.TrimPrefix(callsOfDel, "RevokeExternalConnectivity "))
	f.set("ProgramExternalConnectivity", "", 0)
	f.set("RevokeExternalConnectivity", "404 page not found", 404)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	f.must(t, del(r, config, "pod-1"), callsOfDel)
}

func TestSetupRefusesDrivers(t *testing.T) {
	for _, tt := range []struct{ method, answer, calls, words string }{
		{"Activate", `{"Implements": ["VolumeDriver"]}`, "Activate", `implements ["VolumeDriver"]`},
		{"Activate", `{"Err": "no"}`, "Activate", "Plugin.Activate: no"},
		{"GetCapabilities", `{"Scope": "galactic"}`, "Activate GetCapabilities", `scope "galactic"`},
		{"CreateNetwork", `{"Err": "overlap"}`, callsOfSetup, "CreateNetwork: overlap"},
		{"CreateNetwork", "drop", callsOfSetup + " DeleteNetwork", "no answer"},
	} {
		f := newDriver(t)
		r, config := f.newRemote(t), configWith(t, nil)
		f.set(tt.method, tt.answer, 200)
		err := setup(r, config)
		if got := f.take(); err == nil || got != tt.calls || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: error %v, calls %s", tt.answer, err, got)
		}
		f.checkEmpty(t, 0)
	}
}

// At each call of the driver a kill of the plugin leaves a state of which del knows what to undo.
func TestKilledAddIsUndone(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	states := make(map[string]string)
	f.called = func(method string) { states[method] = f.copyState(t, "killed-in-"+method) }
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	f.called = nil
	// The driver may not have carried out what it was asked for.
	f.set("DeleteEndpoint", `{"Err": "unknown endpoint"}`, 200)
	killed := f.newRemote(t)
	killed.state.dir = copyDir(t, states["CreateEndpoint"], filepath.Join(f.host, "not-carried-out"))
	f.must(t, del(killed, config, "pod-1"), "DeleteEndpoint")
	f.set("DeleteEndpoint", "", 0)
	for method, want := range map[string]string{
		"CreateEndpoint":              "DeleteEndpoint",
		"Join":                        "Leave DeleteEndpoint",
		"ProgramExternalConnectivity": callsOfDel,
	} {
		killed := f.newRemote(t)
		killed.state.dir = states[method]
		f.must(t, del(killed, config, "pod-1"), want)
	}

	// A kill in del: the driver has carried out what it is asked for again.
	f.called = func(method string) { states[method] = f.copyState(t, "killed-in-"+method) }
	f.must(t, del(r, config, "pod-1"), callsOfDel)
	f.called = nil
	for method, want := range map[string]string{
		"RevokeExternalConnectivity": callsOfDel,
		"Leave":                      "Leave detach:eth0:veth1 DeleteEndpoint",
		"DeleteEndpoint":             "DeleteEndpoint",
	} {
		f.set(method, `{"Err": "unknown endpoint"}`, 200)
		killed := f.newRemote(t)
		killed.state.dir = states[method]
		f.must(t, del(killed, config, "pod-1"), want)
		f.set(method, "", 0)
	}
}

// A call that was killed while it saved the endpoint leaves nothing after `del`, whether it was the first save or a later one.
func TestAKilledSaveLeavesNothing(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	for _, connected := range []bool{false, true} {
		calls := ""
		if connected {
			f.must(t, add(r, config, "pod-1"), callsOfAdd)
			calls = callsOfDel
		}
		pod := podNamed("pod-1")
		s, err := parse(config)
		if err != nil {
			t.Fatal(err)
		}
		file := r.state.endpointFile(endpointID(s.Name, pod.UUID, pod.Interface))
		if err := os.WriteFile(file+".new", []byte(`{"id":`), 0o600); err != nil {
			t.Fatal(err)
		}
		f.must(t, del(r, config, "pod-1"), calls)
		f.checkEmpty(t, 1)
	}
}

// A call for a pod waits for another one, of a daemon that was killed.
func TestCallsForAPodDoNotMix(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	late := make(chan error, 1)
	f.called = func(method string) {
		if method == "Join" {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			late <- r.Del(ctx, config, podNamed("pod-1"))
		}
	}
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	if err := <-late; err == nil || !strings.Contains(err.Error(), "wait for another call") {
		t.Errorf("error %v", err)
	}
	f.must(t, del(r, config, "pod-1"), callsOfDel)
}

// What was killed is also undone by the next call that does the same.
func TestKilledCallsAreRepeated(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	states := make(map[string]string)
	f.called = func(method string) { states[method] = f.copyState(t, "killed-in-"+method) }
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	f.called = nil
	killed := f.newRemote(t)
	killed.state.dir = states["CreateNetwork"]
	f.must(t, setup(killed, config), "Activate GetCapabilities DeleteNetwork CreateNetwork")
	killed.state.dir = states["Join"]
	f.must(t, add(killed, config, "pod-1"), "Leave DeleteEndpoint "+callsOfAdd)
}

func TestDelReportsWhatTheDriverAnswersOnce(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	f.set("Leave", `{"Err": "unknown endpoint"}`, 200)
	if err, calls := del(r, config, "pod-1"), f.take(); err == nil || calls != callsOfDel {
		t.Errorf("error %v, calls %s", err, calls)
	}
	f.must(t, del(r, config, "pod-1"), "")
}

// A driver that does not answer is told at the next del.
func TestDelIsRepeatedForADriverThatIsAway(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	f.set("Leave", "drop", 200)
	if err, calls := del(r, config, "pod-1"), f.take(); err == nil || calls != "RevokeExternalConnectivity Leave detach:eth0:veth1" {
		t.Errorf("error %v, calls %s", err, calls)
	}
	f.set("Leave", "", 200)
	f.must(t, del(r, config, "pod-1"), "Leave DeleteEndpoint")
	f.checkEmpty(t, 1)
}

// After a restart of the machine the driver may have forgotten everything, or nothing.
func TestNetworksOfAnEarlierBootAreMadeAgain(t *testing.T) {
	for _, answer := range []string{"{}", `{"Err": "no such network"}`} {
		f := newDriver(t)
		r, config := f.newRemote(t), configWith(t, nil)
		f.must(t, setup(r, config), callsOfSetup)
		f.must(t, add(r, config, "pod-1"), callsOfAdd)
		for _, method := range []string{"Leave", "DeleteEndpoint", "DeleteNetwork", "RevokeExternalConnectivity"} {
			f.set(method, answer, 200)
		}
		r.state.boot = "boot 2"
		f.must(t, setup(r, config), "Activate GetCapabilities RevokeExternalConnectivity Leave detach:eth0:veth1 DeleteEndpoint DeleteNetwork CreateNetwork")
		f.must(t, del(r, config, "pod-1"), "")
		f.checkEmpty(t, 1)
	}
}

func TestRemoveKeepsWhatTheDriverDoesNotAnswer(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	f.set("DeleteNetwork", "drop", 200)
	if err := r.Remove(context.Background(), config); err == nil {
		t.Error("no error of a driver that is away")
	}
	f.checkEmpty(t, 1)
	f.set("DeleteNetwork", `{"Err": "in use"}`, 200)
	if err := r.Remove(context.Background(), config); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v", err)
	}
	f.checkEmpty(t, 0)
}

func TestCheckAsksTheDriverAboutPods(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	r.checks = true
	f.must(t, setup(r, config), "Activate GetCapabilities EndpointOperInfo")
	f.set("EndpointOperInfo", `{"Err": "unknown endpoint"}`, 200)
	if err := setup(r, config); err == nil || !strings.Contains(err.Error(), "unknown endpoint") {
		t.Errorf("error %v", err)
	}
}

func TestPodsAtOnceHaveAddressesOfTheirOwn(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	const pods = 24
	results, errs := make(chan string, pods), make(chan error, pods)
	for i := range pods {
		go func() {
			result, err := r.Add(context.Background(), config, podNamed(fmt.Sprint("pod-", i)))
			if err == nil {
				results <- result.IP4.IP
			}
			errs <- err
		}()
	}
	for range pods {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	close(results)
	seen := make(map[string]bool)
	for ip := range results {
		seen[ip] = true
	}
	if len(seen) != pods {
		t.Errorf("%d addresses for %d pods: %v", len(seen), pods, seen)
	}
	for i := range pods {
		if err := del(r, config, fmt.Sprint("pod-", i)); err != nil {
			t.Error(err)
		}
	}
	f.checkEmpty(t, 1)
}

func TestStateThatAPowerLossHasDamaged(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
	files, _ := filepath.Glob(filepath.Join(f.host, "state/*/*.json"))
	for _, file := range files {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.must(t, setup(r, config), callsOfSetup)
	f.must(t, del(r, config, "pod-1"), "")
	f.must(t, add(r, config, "pod-1"), callsOfAdd)
}

var _ plugin.Remover = (*remote)(nil)
