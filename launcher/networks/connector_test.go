package networks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a plugin that records its calls.
type fake struct {
	mu    *sync.Mutex
	calls *[]string
	name  string
	add   func(ctx context.Context) ([]byte, error)
	del   func(ctx context.Context) error
}

func (f *fake) note(what string, call Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*f.calls = append(*f.calls, fmt.Sprintf("%s %s %s %s %s %s", what, f.name, call.Namespace, call.UUID, call.Interface, call.Config))
}

func (f *fake) Start(context.Context) error { return nil }

func (f *fake) Add(ctx context.Context, call Call) ([]byte, error) {
	f.note("add", call)
	if f.add == nil {
		return []byte(`{"ip4":{"ip":"10.0.0.2/24"}}`), nil
	}
	return f.add(ctx)
}

func (f *fake) Del(ctx context.Context, call Call) error {
	f.note("del", call)
	if f.del == nil {
		return nil
	}
	return f.del(ctx)
}

// missing is a plugin that cannot be started.
type missing struct{}

var errMissing = errors.New("no image")

func (missing) Start(context.Context) error               { return errMissing }
func (missing) Add(context.Context, Call) ([]byte, error) { return nil, errMissing }
func (missing) Del(context.Context, Call) error           { return errMissing }

// fakes are plugins by their networks' names.
type fakes struct {
	*Connector
	calls   []string
	mu      sync.Mutex
	plugins map[string]*fake
	file    string
}

func newFakes(t *testing.T, plugins map[string]*fake) *fakes {
	f := &fakes{plugins: plugins, file: filepath.Join(t.TempDir(), "networks.json")}
	for name, p := range plugins {
		p.mu, p.calls, p.name = &f.mu, &f.calls, name
	}
	plugin := func(network string) Plugin {
		if p := f.plugins[network]; p != nil {
			return p
		}
		return missing{}
	}
	f.Connector = &Connector{Plugin: plugin}
	return f
}

func attachments(names ...string) []Attachment {
	var all []Attachment
	for i, name := range names {
		all = append(all, Attachment{Network: name, Interface: fmt.Sprintf("eth%d", i), Config: "{" + name + "}"})
	}
	return all
}

func (f *fakes) connect(names ...string) ([]Result, error) {
	return f.Connect(context.Background(), f.file, "uuid", "/ns", attachments(names...))
}

func (f *fakes) disconnect(names ...string) error {
	return f.Disconnect(context.Background(), f.file, "uuid", "/ns", attachments(names...))
}

func (f *fakes) check(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, f.calls); diff != "" {
		t.Errorf("calls:\n%s", diff)
	}
}

func isGone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func TestConnectInOrderAndDisconnectInReverse(t *testing.T) {
	f := newFakes(t, map[string]*fake{"a": {}, "b": {add: func(context.Context) ([]byte, error) { return nil, nil }}})
	results, err := f.connect("a", "b")
	if err != nil || len(results) != 2 || results[0].IP4.IP != "10.0.0.2/24" || results[1].IP4 != nil {
		t.Errorf("results %+v, %v", results, err)
	}
	record, err := ReadRecord(f.file)
	if err != nil || record.Begun != 2 || len(record.Results) != 2 {
		t.Errorf("record %+v, %v", record, err)
	}
	if err := f.disconnect("a", "b"); err != nil || !isGone(f.file) {
		t.Errorf("disconnect: %v, record gone %v", err, isGone(f.file))
	}
	f.check(t, "add a /ns uuid eth0 {a}", "add b /ns uuid eth1 {b}", "del b /ns uuid eth1 {b}", "del a /ns uuid eth0 {a}")
	if err := f.disconnect("a", "b"); err != nil || len(f.calls) != 4 {
		t.Errorf("again: %v", err)
	}
}

func TestAFailedAddIsUndoneWithTheEarlierOnes(t *testing.T) {
	hangs := func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, context.Cause(ctx) }
	for _, tt := range []struct {
		name, words string
		add         func(context.Context) ([]byte, error)
	}{
		{"error", "no more addresses", func(context.Context) ([]byte, error) { return nil, errors.New("exit status 1: no more addresses") }},
		{"garbage", "not a result: hello world", func(context.Context) ([]byte, error) { return []byte("hello\nworld"), nil }},
		{"hangs", "not done within", hangs},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFakes(t, map[string]*fake{"a": {}, "b": {add: tt.add}, "c": {}})
			f.CallTime = 50 * time.Millisecond
			_, err := f.connect("a", "b", "c")
			if err == nil || !strings.Contains(err.Error(), tt.words) || !strings.Contains(err.Error(), `network "b"`) {
				t.Errorf("error %v, want the network and %q", err, tt.words)
			}
			f.check(t, "add a /ns uuid eth0 {a}", "add b /ns uuid eth1 {b}", "del b /ns uuid eth1 {b}", "del a /ns uuid eth0 {a}")
			if !isGone(f.file) {
				t.Error("the record stays")
			}
		})
	}
}

// The results of the last add cannot be written, as on a full disk.
func TestARecordThatCannotBeWrittenUndoesEveryAdd(t *testing.T) {
	var f *fakes
	f = newFakes(t, map[string]*fake{"a": {}, "b": {add: func(context.Context) ([]byte, error) {
		return nil, os.Mkdir(f.file+".new", 0o700) // in the place of the next record
	}}})
	results, err := f.connect("a", "b")
	if !errors.Is(err, syscall.EISDIR) || results != nil || !isGone(f.file) {
		t.Errorf("results %v, error %v, record gone %v", results, err, isGone(f.file))
	}
	f.check(t, "add a /ns uuid eth0 {a}", "add b /ns uuid eth1 {b}", "del b /ns uuid eth1 {b}", "del a /ns uuid eth0 {a}")
}

func TestEveryDelIsTriedAndCanBeRepeated(t *testing.T) {
	broken := true
	f := newFakes(t, map[string]*fake{"a": {}, "b": {del: func(context.Context) error {
		if broken {
			return errors.New("device busy")
		}
		return nil
	}}})
	if _, err := f.connect("a", "b"); err != nil {
		t.Fatal(err)
	}
	f.calls = nil
	if err := f.disconnect("a", "b"); err == nil || !strings.Contains(err.Error(), `network "b": device busy`) || isGone(f.file) {
		t.Errorf("error %v, record gone %v", err, isGone(f.file))
	}
	broken = false
	if err := f.disconnect("a", "b"); err != nil || !isGone(f.file) {
		t.Errorf("again: %v", err)
	}
	f.check(t, "del b /ns uuid eth1 {b}", "del a /ns uuid eth0 {a}", "del b /ns uuid eth1 {b}", "del a /ns uuid eth0 {a}")
}

// A launcher that is killed in an `add` leaves a record of it: another one undoes that add, and
// not those that have not begun.
func TestACrashIsUndoneFromTheRecord(t *testing.T) {
	var f *fakes
	f = newFakes(t, map[string]*fake{"a": {}, "b": {add: func(context.Context) ([]byte, error) {
		record, err := ReadRecord(f.file)
		if err != nil || record.Begun != 2 || len(record.Results) != 1 {
			t.Errorf("record in add: %+v, %v", record, err)
		}
		return nil, nil
	}}, "c": {}})
	if _, err := f.connect("a", "b"); err != nil {
		t.Fatal(err)
	}
	f.calls = nil
	if err := f.disconnect("a", "b", "c"); err != nil {
		t.Error(err)
	}
	f.check(t, "del b /ns uuid eth1 {b}", "del a /ns uuid eth0 {a}")
	if err := os.WriteFile(f.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.calls = nil
	if err := f.disconnect("a", "b", "c"); err != nil || len(f.calls) != 3 {
		t.Errorf("a damaged record: %v, %q", err, f.calls)
	}
}

func TestANetworkWithoutAPluginFails(t *testing.T) {
	f := newFakes(t, map[string]*fake{"a": {}})
	if _, err := f.connect("a", "x"); err == nil || err.Error() != `connect to network "x": no image` || !isGone(f.file) {
		t.Errorf("error %v, record gone %v", err, isGone(f.file))
	}
	f.check(t, "add a /ns uuid eth0 {a}", "del a /ns uuid eth0 {a}")
	if _, err := f.connect("x"); err == nil || !isGone(f.file) {
		t.Errorf("error %v, record gone %v", err, isGone(f.file))
	}
}

// A port on an address of a family that the pod does not have on the network is an error, and the pod is disconnected.
func TestAPortWantsAnAddressOfItsFamily(t *testing.T) {
	const v4, v6, both = `{"ip4":{"ip":"10.0.0.2/24"}}`, `{"ip6":{"ip":"fd00::2/64"}}`, `{"ip4":{"ip":"10.0.0.2/24"},"ip6":{"ip":"fd00::2/64"}}`
	for _, tt := range []struct{ result, hostIP, missing string }{
		{v4, "", ""},
		{v4, "0.0.0.0", ""},
		{v4, "192.0.2.1", ""},
		{v4, "::ffff:192.0.2.1", ""},
		{v4, "::", "IPv6"},
		{v4, "fd00:1::1", "IPv6"},
		{v6, "", ""},
		{v6, "::", ""},
		{v6, "127.0.0.1", "IPv4"},
		{v6, "0.0.0.0", "IPv4"},
		{both, "::", ""},
		{both, "127.0.0.1", ""},
		{"", "::", ""},
	} {
		f := newFakes(t, map[string]*fake{"n": {add: func(context.Context) ([]byte, error) { return []byte(tt.result), nil }}})
		port := PortMapping{HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: tt.hostIP}
		config, err := addKey("{}", "runtimeConfig", map[string]any{"portMappings": []PortMapping{port}})
		if err != nil {
			t.Fatal(err)
		}
		all := []Attachment{{Network: "n", Interface: "eth0", Config: config}}
		_, err = f.Connect(t.Context(), f.file, "uuid", "/ns", all)
		if tt.missing == "" {
			if err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		want := fmt.Sprintf(`connect to network "n": port %s cannot be published: the pod has no %s address on the network`, port, tt.missing)
		if err == nil || err.Error() != want || !isGone(f.file) || len(f.calls) != 2 {
			t.Errorf("%+v: %v, calls %q, want %q", tt, err, f.calls, want)
		}
	}
}
