package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pathPlugin answers its PATH.
type pathPlugin struct{}

func (pathPlugin) Setup(context.Context, []byte) error    { return nil }
func (pathPlugin) Del(context.Context, []byte, Pod) error { return nil }
func (pathPlugin) Add(context.Context, []byte, Pod) (*Result, error) {
	return &Result{DNS: &DNS{Domain: os.Getenv("PATH")}}, nil
}

// keepingPlugin prints the configurations that it is given.
type keepingPlugin struct{ pathPlugin }

func (keepingPlugin) Setup(_ context.Context, config []byte) error {
	fmt.Fprintf(os.Stdout, "%s\n", config)
	return nil
}

func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "add":
		Main(pathPlugin{})
		return
	case "setup": // in a mount namespace of its own
		if err := unix.Mount(os.Getenv("STATE"), filepath.Dir(StateDir), "", unix.MS_BIND, ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		Main(keepingPlugin{})
		return
	}
	os.Exit(m.Run())
}

// stayOnce runs a main process until it has set up its network, kills it, and returns what its Setup was given, or what
// it has written to stderr.
func stayOnce(t *testing.T, state, stdin string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Args, cmd.Env = []string{"/opt/network/setup", stay}, []string{"STATE=" + state}
	cmd.Stdin, cmd.SysProcAttr = strings.NewReader(stdin), &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	return strings.TrimSpace(line + stderr.String())
}

// A stager starts a main process again with the stdin that the daemon has written to, which is empty by then.
func TestAMainProcessThatIsRestartedHasItsConfiguration(t *testing.T) {
	state := t.TempDir()
	for i, step := range []struct{ stdin, want string }{
		{"", "read configuration: empty"},
		{`{"name": "a"}`, `{"name": "a"}`},
		{"", `{"name": "a"}`},
		{`{"name": "b"}`, `{"name": "b"}`},
		{"{", "read configuration: not JSON"},
		{"", `{"name": "b"}`},
		{"", `{"name": "b"}`},
	} {
		if got := stayOnce(t, state, step.stdin); got != step.want {
			t.Errorf("start %d: %s, want %s", i, got, step.want)
		}
	}
	entries, err := os.ReadDir(filepath.Join(state, "network"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("left: %v, %v", entries, err)
	}
	if info, err := entries[0].Info(); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v: others read passwords", info.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(state, "network/setup.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := stayOnce(t, state, ""), "read configuration: /var/lib/network/setup.json: not JSON"; got != want {
		t.Errorf("damaged: %s, want %s", got, want)
	}
}

// A daemon may execute a plugin with an empty environment.
func TestAPluginFindsItsProgramsWithoutPATH(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  []string
		want string
	}{
		{"empty environment", []string{}, programs},
		{"empty PATH", []string{"PATH="}, programs},
		{"a PATH of the caller", []string{"PATH=/opt/bin"}, "/opt/bin"},
	} {
		cmd := exec.Command("/proc/self/exe", "/proc/self/ns/net", "uuid", "eth0")
		cmd.Args[0], cmd.Env, cmd.Stdin = "/opt/network/add", tt.env, strings.NewReader("{}")
		out, err := cmd.Output()
		var result Result
		if err != nil || json.Unmarshal(out, &result) != nil || result.DNS == nil || result.DNS.Domain != tt.want {
			t.Errorf("%s: %v, %s, want PATH %s", tt.name, err, out, tt.want)
		}
	}
}
