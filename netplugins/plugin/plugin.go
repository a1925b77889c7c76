// Package plugin is the frame of a Kurma network plugin (Kurma Network Specification): it reads
// arguments and configuration, calls a Plugin, and writes its result. A plugin's main function
// is one line, `plugin.Main(myPlugin{})`, and its image has the program three times, as
// /opt/network/setup, /opt/network/add and /opt/network/del, which may be links.
//
//	setup             stdin: the network's configuration
//	add NS UUID [IF]  stdin: the same; stdout: a result
//	del NS UUID [IF]  stdin: the same
//	setup stay        as setup, then waits for SIGTERM, and does what remove does; an empty stdin means the
//	                  configuration of the setup stay before
//	remove            stdin: the same; for a Remover only
//
// The launcher tells setup by variables what more it may do: NETWORK_CHECK asks to check the pods that are
// connected, and with NETWORK_IDLE no other call of the network runs until setup has ended. NETWORK_PODS then has the
// UUIDs of all pods that may be connected, with spaces between them, where the paths of their namespaces do not stay.
//
// Exit status 0 is success; otherwise stderr has the reason, in one line. After success
// nothing is on stderr: a Kurma daemon of 2016 gives both streams one pipe, and reads the result
// from it. Such a daemon also runs the image's app as the container's main process, which must
// stay; the image's exec is `/opt/network/setup stay` therefore.
package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Folders of a plugin's own, in its container. StateDir outlasts the container; RunDir does so
// until the machine is restarted.
const (
	StateDir = "/var/lib/network"
	RunDir   = "/run/network"
)

// stay is the argument by which setup becomes a container's main process.
const stay = "stay"

const (
	// callTime limits a call: a daemon ends it after a minute, or, as one of 2016, never.
	callTime = 50 * time.Second
	// UndoTime is what is left of the daemon's minute to undo a call that took too long.
	UndoTime = 8 * time.Second
)

// maxConfig is the longest configuration that is read, in bytes.
const maxConfig = 16 << 20

// Plugin is what a network plugin does. The methods may run concurrently, in processes of
// their own. config is the network's configuration as the operator wrote it, with what the
// daemon adds for a pod.
type Plugin interface {
	// Setup prepares the network on the host, and checks it when it is called again.
	Setup(ctx context.Context, config []byte) error
	// Add connects a pod. What an Add that failed leaves, Del must remove.
	Add(ctx context.Context, config []byte, pod Pod) (*Result, error)
	// Del undoes Add. It is no error if there is nothing to undo.
	Del(ctx context.Context, config []byte, pod Pod) error
}

// Remover is a Plugin that makes something that outlasts its container. Its image also has the program as
// /opt/network/remove, which our launcher calls when a network has left the configuration. Other daemons
// do not know it: there the network goes with the container's main process.
type Remover interface {
	// Remove undoes Setup. No pod is connected.
	Remove(ctx context.Context, config []byte) error
}

// HostRoot is the path of the host's root folder: the daemon's, by the variable NETWORK_HOST that our
// launcher sets, else that of the machine's first process.
func HostRoot() string {
	if path := os.Getenv("NETWORK_HOST"); path != "" {
		return path
	}
	return "/proc/1/root"
}

// Pod is the pod of an Add or Del.
type Pod struct {
	Namespace string // path of its network namespace
	UUID      string
	Interface string // "" if the configuration has no containerInterface
}

// Result is what Add prints.
type Result struct {
	IP4 *IP  `json:"ip4,omitempty"`
	IP6 *IP  `json:"ip6,omitempty"`
	DNS *DNS `json:"dns,omitempty"` // nil for no answer: {} empties a pod's resolv.conf
}

// IP is an address, and how it reaches others.
type IP struct {
	IP      string  `json:"ip"` // in CIDR notation
	Gateway string  `json:"gateway,omitempty"`
	Routes  []Route `json:"routes,omitempty"`
}

// Route is a route to a subnet.
type Route struct {
	Dst string `json:"dst"` // in CIDR notation
	GW  string `json:"gw,omitempty"`
}

// DNS is what the network says about name servers.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// programs is the PATH of a plugin that is called without one, as some stagers' run does.
const programs = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Main runs the plugin by the program's name and arguments, and ends the process. It gives a plugin that is called
// without PATH a default, for the programs of its image.
func Main(p Plugin) {
	if os.Getenv("PATH") == "" {
		_ = os.Setenv("PATH", programs) // fails for no such value
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := run(ctx, p, os.Args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, oneLine(err))
		os.Exit(1)
	}
}

// errEmpty is readConfig's error for no byte at all.
var errEmpty = errors.New("empty")

func readConfig(stdin io.Reader) ([]byte, error) {
	config, err := io.ReadAll(io.LimitReader(stdin, maxConfig+1))
	switch {
	case err != nil:
		return nil, err
	case len(config) > maxConfig:
		return nil, fmt.Errorf("longer than %d bytes", maxConfig)
	case len(config) == 0:
		return nil, errEmpty
	case !json.Valid(config):
		return nil, errors.New("not JSON")
	}
	return config, nil
}

// add connects a pod and prints the result.
func add(ctx context.Context, p Plugin, config []byte, args []string, stdout io.Writer) error {
	pod, err := podOf(args)
	if err != nil {
		return err
	}
	result, err := p.Add(ctx, config, pod)
	if err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(result)
}

// del disconnects a pod.
func del(ctx context.Context, p Plugin, config []byte, args []string) error {
	pod, err := podOf(args)
	if err != nil {
		return err
	}
	return p.Del(ctx, config, pod)
}

// run is Main with everything given: argv is the program's command line, whose first word ends
// in setup, add, del or remove.
func run(ctx context.Context, p Plugin, argv []string, stdin io.Reader, stdout io.Writer) error {
	name, args := filepath.Base(argv[0]), argv[1:]
	read := readConfig
	if name == "setup" && slices.Equal(args, []string{stay}) {
		read = mainConfig
	}
	config, err := read(stdin)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	daemon := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, fmt.Errorf("not done within %v", callTime))
	defer cancel()
	switch name {
	case "setup":
		return setup(ctx, daemon, p, config, args)
	case "add":
		return add(ctx, p, config, args, stdout)
	case "del":
		return del(ctx, p, config, args)
	case "remove":
		return remove(ctx, p, config)
	}
	return fmt.Errorf("called as %q: want setup, add, del or remove", name)
}

// setup calls Setup, and as a main process waits until daemon ends.
func setup(ctx, daemon context.Context, p Plugin, config []byte, args []string) error {
	if len(args) > 1 || len(args) == 1 && args[0] != stay {
		return errors.New("setup takes no arguments")
	}
	if err := p.Setup(ctx, config); err != nil {
		return err
	}
	if len(args) == 0 {
		return nil
	}
	<-daemon.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(daemon), UndoTime)
	defer cancel()
	return remove(ctx, p, config)
}

// remove calls Remove of a plugin that has it.
func remove(ctx context.Context, p Plugin, config []byte) error {
	if r, ok := p.(Remover); ok {
		return r.Remove(ctx, config)
	}
	return nil
}

func podOf(args []string) (Pod, error) {
	if len(args) < 2 || len(args) > 3 || args[0] == "" || args[1] == "" {
		return Pod{}, errors.New("want the path of a network namespace, a UUID and an interface")
	}
	pod := Pod{Namespace: args[0], UUID: args[1]}
	if len(args) == 3 {
		pod.Interface = args[2]
	}
	return pod, nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
