package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestADriverThatDoesNotAnswerInTime(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	f.set("Join", "hang", 200)
	r.patience.request = 3 * time.Second // also for the calls that are answered
	if err, calls := add(r, config, "pod-1"), f.take(); err == nil || !strings.Contains(err.Error(), "not done within") || calls != "CreateEndpoint Join Leave DeleteEndpoint" {
		t.Errorf("error %v, calls %s", err, calls)
	}
	f.checkEmpty(t, 1)
}

// Of a call that did not reach the driver there is nothing to undo.
func TestADriverThatDoesNotListen(t *testing.T) {
	f := newDriver(t)
	r, config := f.newRemote(t), configWith(t, nil)
	f.must(t, setup(r, config), callsOfSetup)
	socket := filepath.Join(f.host, socketDir, "test.sock")
	for _, cause := range []func() error{
		func() error { // a socket that nobody listens on
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket + ".new"})
			if err != nil {
				return err
			}
			l.SetUnlinkOnClose(false)
			return errors.Join(l.Close(), os.Rename(socket+".new", socket))
		},
		func() error { return os.Remove(socket) },
	} {
		if err := cause(); err != nil {
			t.Fatal(err)
		}
		err := add(r, config, "pod-1")
		if calls := f.take(); err == nil || calls != "" || strings.Contains(err.Error(), "undo") {
			t.Errorf("error %v, calls %s", err, calls)
		}
		f.checkEmpty(t, 1)
	}
}

// A driver that is not there yet, or does not listen yet, is waited for; one that answers is not asked again.
func TestCallsAreTriedAgain(t *testing.T) {
	f := newDriver(t)
	r := f.newRemote(t)
	r.patience = patience{request: 10 * time.Second, retries: 10 * time.Second, pause: 10 * time.Millisecond}
	f.called = func(string) { f.set("Activate", `{"Implements": ["NetworkDriver"]}`, 200) }
	f.set("Activate", "drop", 200)
	f.must(t, setup(r, configWith(t, nil)), "Activate Activate GetCapabilities CreateNetwork")
	f.called = nil
	f.set("CreateEndpoint", "{}", 503)
	if err, calls := add(r, configWith(t, nil), "pod-1"), f.take(); err == nil || calls != "CreateEndpoint" {
		t.Errorf("error %v, calls %s", err, calls)
	}
	later := make(chan struct{})
	go func() {
		defer close(later)
		f.serve(t, f.listen(t, "late"))
	}()
	err := setup(r, configWith(t, map[string]any{"driver": "late"}))
	<-later
	if err != nil {
		t.Errorf("a driver that is there later: %v", err)
	}
	r.patience.retries = 30 * time.Millisecond
	if err := setup(r, configWith(t, map[string]any{"driver": "never"})); err == nil || !strings.Contains(err.Error(), "no /run/docker/plugins/never.sock") {
		t.Errorf("a driver that is never there: %v", err)
	}
}
