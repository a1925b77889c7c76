package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/tests/harness"
)

// hanging is a plugin as a shell script, of which the executable that the configuration's key "do" names hangs once.
const hanging = `#!/bin/busybox sh
config=$(/bin/busybox cat)
name=${0##*/}
echo $name >>/var/lib/network/calls
case $config in *'"do": "'$name'"'*)
	[ -e /var/lib/network/hung ] || { >/var/lib/network/hung; /bin/busybox sleep 3599 & /bin/busybox sleep 3599; } ;;
esac
`

// Each call of a plugin has a limit, the minute of the specification, which is shorter here. A call that takes longer is ended
// with all of its processes, and the next one works.
func TestAPluginThatHangsIsEndedAfterItsTime(t *testing.T) {
	t.Parallel()
	m := newScriptMachine(t, hanging, "setup", "add", "del", "remove")
	const limit = 5 * time.Second
	for _, tt := range []struct{ network, words, calls string }{
		{"setup", `start plugin of network "setup": setup: not done within 5s`, "setup setup add del"},
		{"add", `connect to network "add": add: not done within 5s`, "setup add del add del"},
		{"del", `disconnect from network "del": del: not done within 5s`, "setup add del del add del"}, // the next pod disconnects the one that is still connected
		{"remove", "", "setup add del add del"},
	} {
		d := m.daemon(limit)
		if err := m.runIn(d, tt.network); tt.words == "" && err != nil || tt.words != "" && (err == nil || !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%s: %v, want %q", tt.network, err, tt.words)
		}
		// A process that was killed has closed its files a moment before it is gone.
		harness.Eventually(t, tt.network+": no process of the plugin", func() bool { return m.sleepers() == 0 })
		m.LayersAreNow() // the plugin's image is new in the store
		if err := m.runIn(d, tt.network); err != nil {
			t.Errorf("%s, after a call that hung: %v", tt.network, err)
		}
		if calls := strings.Join(strings.Fields(m.calls(tt.network)), " "); calls != tt.calls {
			t.Errorf("%s: calls %s, want %s", tt.network, calls, tt.calls)
		}
	}
	m.reconfigure("[]")
	d := m.daemon(limit)
	const words = `delete network "remove", which is not in the configuration: remove: not done within 5s`
	if _, err := d.Collect(context.Background()); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("gc: %v, want one error, %q", err, words)
	}
	if n := m.sleepers(); n != 0 {
		t.Errorf("left: %d processes of the plugin", n)
	}
	again, err := d.Collect(context.Background())
	if got := fmt.Sprint(again.Networks); err != nil || got != "[remove]" {
		t.Errorf("gc, after a call that hung: networks %s, %v", got, err)
	}
}

// daemon opens the machine's configuration in this process, whose calls of plugins have the limit.
func (m *netMachine) daemon(limit time.Duration) *daemon.Daemon {
	m.T.Helper()
	d, err := openDaemon(m.Dir, limit)
	if err != nil {
		m.T.Fatal(err)
	}
	return d
}

// openDaemon opens the daemon of a machine, whose folder is dir.
func openDaemon(dir string, limit time.Duration) (*daemon.Daemon, error) {
	config, err := daemon.ReadConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	return daemon.Open(config, daemon.Options{State: dir, CallTime: limit, Programs: daemon.Programs{
		Monitor: []string{os.Args[0], monitorWord, dir}, Hold: suite.Launcher,
	}})
}

// monitorWord is the first argument of a test program that is the monitor of a plugin's container.
const monitorWord = "monitor"

// beMonitor makes this process a monitor, if its arguments say so.
func beMonitor() {
	if len(os.Args) != 4 || os.Args[1] != monitorWord {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	d, err := openDaemon(os.Args[2], 0)
	if err == nil {
		err = d.Monitor(ctx, os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "monitor:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runIn runs a pod on a network, whose monitor is this process, until its app has ended.
func (m *netMachine) runIn(d *daemon.Daemon, network string) error {
	m.T.Helper()
	doc, err := json.Marshal(harness.PodOf(suite.Shell("s", "true")))
	if err != nil {
		m.T.Fatal(err)
	}
	launch, _, err := d.Create(context.Background(), daemon.PodOptions{
		Manifest: doc, File: network + ".json",
		Options: podplan.Options{Name: network, DefaultExit: "all", Networks: []networks.Request{{Name: network}}},
	})
	if err != nil {
		return err
	}
	_, err = launch.Run(context.Background(), func() error { return nil })
	return errors.Join(err, launch.Close())
}
