package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kurma.io/stager/netplugins/plugin"
)

// fakeDriver is a network driver that answers as it is told.
type fakeDriver struct {
	host string // root folder of the machine

	mu      sync.Mutex
	log     []string          // methods, and what the fake linker does
	bodies  map[string]string // the last request of each method
	lines   []string          // METHOD BODY of each request
	answers map[string]string // of methods that do not answer {}
	status  map[string]int    // of methods that do not answer with 200
	called  func(method string)
}

// newDriver runs a driver "test" on a machine of its own.
func newDriver(t *testing.T) *fakeDriver {
	t.Helper()
	dir, err := os.MkdirTemp("", "remote") // short, for unix(7)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fakeDriver{host: dir, bodies: make(map[string]string), status: make(map[string]int), answers: map[string]string{
		"Activate": `{"Implements": ["NetworkDriver"]}`, "GetCapabilities": `{"Scope": "local"}`,
		"CreateEndpoint": `{"Interface": {"MacAddress": "02:00:00:00:00:01"}}`,
		"Join":           `{"InterfaceName": {"SrcName": "veth1", "DstPrefix": "eth"}, "Gateway": "10.1.0.1"}`,
	}}
	f.serve(t, f.listen(t, "test"))
	return f
}

// listen makes the socket of a driver.
func (f *fakeDriver) listen(t *testing.T, name string) net.Listener {
	t.Helper()
	socket := filepath.Join(f.host, socketDir, name+".sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (f *fakeDriver) serve(t *testing.T, l net.Listener) {
	server := &http.Server{Handler: f} //nolint:gosec // a test's
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// ServeHTTP implements http.Handler.
func (f *fakeDriver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, method, _ := strings.Cut(r.URL.Path, ".")
	f.mu.Lock()
	f.log = append(f.log, method)
	f.bodies[method] = string(body)
	f.lines = append(f.lines, method+" "+string(body)+"\n")
	answer, status, called := f.answers[method], f.status[method], f.called
	f.mu.Unlock()
	if called != nil {
		called(method)
	}
	switch {
	case r.Method != http.MethodPost || r.Header.Get("Accept") != "application/vnd.docker.plugins.v1.2+json":
		http.Error(w, "not Docker's plugin protocol", http.StatusTeapot)
		return
	case answer == "hang":
		<-r.Context().Done()
		return
	case answer == "drop":
		panic(http.ErrAbortHandler)
	case answer == "":
		answer = "{}"
	}
	if status != 0 {
		w.Header().Set("Location", "/NetworkDriver.Elsewhere") // for a redirection
		w.WriteHeader(status)
	}
	_, _ = io.WriteString(w, answer)
}

// take returns the log and empties it.
func (f *fakeDriver) take() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := strings.Join(f.log, " ")
	f.log = nil
	return log
}

func (f *fakeDriver) write(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf(format, args...))
}

// fakeLinks is a linker that writes what it does into the driver's log.
type fakeLinks struct {
	*fakeDriver
	fail error
}

func (l fakeLinks) choose(pod plugin.Pod, with link) (string, error) {
	if pod.Interface != "" {
		return pod.Interface, nil
	}
	return with.Prefix + "0", nil
}

func (l fakeLinks) attach(_ plugin.Pod, name string, with link) error {
	l.write("attach:%s:%s", with.Source, name)
	return l.fail
}

func (l fakeLinks) detach(_ plugin.Pod, moved movedLink) error {
	l.write("detach:%s:%s", moved.Name, moved.Source)
	return nil
}

// newRemote returns a plugin of the driver's machine, which does not wait for long.
func (f *fakeDriver) newRemote(t *testing.T) *remote {
	t.Helper()
	host, err := openRoot(f.host)
	if err != nil {
		t.Fatal(err)
	}
	return &remote{
		roots: []*root{host}, links: fakeLinks{f, nil}, state: state{filepath.Join(f.host, "state"), "boot 1"},
		patience: patience{request: 10 * time.Second, retries: 0},
	}
}

// configWith is a network's configuration, with further keys.
func configWith(t *testing.T, more map[string]any) []byte {
	t.Helper()
	keys := map[string]any{
		"name": "net", "aci": "x", "containerInterface": "eth{{num}}", "driver": "test",
		"ipam": []any{map[string]any{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1/24", "auxAddresses": map[string]string{"router": "10.1.0.2"}}},
	}
	maps.Copy(keys, more)
	config, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func podNamed(uuid string) plugin.Pod {
	return plugin.Pod{Namespace: "/proc/1/ns/net", UUID: uuid, Interface: "eth0"}
}

// What a pod's life is to the driver.
const (
	callsOfSetup  = "Activate GetCapabilities CreateNetwork"
	callsToExpose = "CreateEndpoint Join attach:veth1:eth0 ProgramExternalConnectivity" // what an add does that fails there
	callsOfAdd    = callsToExpose + " EndpointOperInfo"
	callsOfDel    = "RevokeExternalConnectivity Leave detach:eth0:veth1 DeleteEndpoint"
	callsOfRemove = "DeleteNetwork"
)

// must fails the test if a call of the plugin fails or the driver's log is another one.
func (f *fakeDriver) must(t *testing.T, err error, want string) {
	t.Helper()
	if got := f.take(); err != nil || got != want {
		t.Fatalf("error %v; calls\n%s, want\n%s", err, got, want)
	}
}

// checkEmpty checks that nothing of a pod is left on disk, and how many networks are.
func (f *fakeDriver) checkEmpty(t *testing.T, networks int) {
	t.Helper()
	endpoints, _ := filepath.Glob(filepath.Join(f.host, "state/endpoints/*"))
	records, _ := filepath.Glob(filepath.Join(f.host, "state/networks/*"))
	if len(endpoints) > 0 || len(records) != networks {
		t.Errorf("left: endpoints %v, networks %v", endpoints, records)
	}
}

func (f *fakeDriver) set(method, answer string, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[method], f.status[method] = answer, status
}

func add(r *remote, config []byte, uuid string) error {
	_, err := r.Add(context.Background(), config, podNamed(uuid))
	return err
}

func del(r *remote, config []byte, uuid string) error {
	return r.Del(context.Background(), config, podNamed(uuid))
}

func setup(r *remote, config []byte) error { return r.Setup(context.Background(), config) }

// copyState copies the plugin's state, as a kill of the plugin would leave it.
func (f *fakeDriver) copyState(t *testing.T, name string) string {
	return copyDir(t, filepath.Join(f.host, "state"), filepath.Join(f.host, name))
}

func copyDir(t *testing.T, from, to string) string {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Error(err)
	}
	return to
}
