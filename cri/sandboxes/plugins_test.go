package sandboxes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/cri/records"
	"kurma.io/stager/tests/hostile"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
)

// connectWord makes this program a server that connects a sandbox by the plugins of a folder.
const connectWord = "connect-a-sandbox"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == HoldPIDsCommand {
		if err := Hold(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	if len(os.Args) == 2 && os.Args[1] == attackWord {
		sent, err := hostile.Signal(1)
		fmt.Fprintln(os.Stdout, sent, err)
		os.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == connectWord {
		if err := connectTest(context.Background(), os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	surroundings.Settle()
	os.Exit(m.Run())
}

func connectTest(ctx context.Context, dir string) error {
	n := CNI{PluginDirs: []string{dir}}
	config := `{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "plugin"}]}`
	r := records.Sandbox{ID: records.NewID(), NetworkConfig: []byte(config)}
	return n.connect(ctx, dir, &r)
}

// writePlugin writes a plugin, and returns its folder.
func writePlugin(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plugin"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A plugin does not go on when its server has been killed: the next server may have undone by then what it does.
func TestPluginsEndWithTheServer(t *testing.T) {
	dir := writePlugin(t, `echo $$ >${0%/*}/new && mv ${0%/*}/new ${0%/*}/number; exec sleep 1000`)
	server := exec.Command("/proc/self/exe", connectWord, dir)
	if err := surroundings.Start(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
	var number string
	surroundings.Eventually(t, "the plugin runs", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "number"))
		number = strings.TrimSpace(string(text))
		return err == nil
	})
	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	surroundings.Eventually(t, "the plugin has ended", func() bool {
		text, err := os.ReadFile("/proc/" + number + "/stat")
		return errors.Is(err, fs.ErrNotExist) || strings.Contains(string(text), ") Z ")
	})
}

// A plugin's child that keeps its output open holds up nobody, whether the plugin succeeds or hangs.
func TestPluginsMayLeaveChildren(t *testing.T) {
	for end, ok := range map[string]bool{
		`echo '{"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.1/24"}]}'`: true, "wait": false,
	} {
		dir := writePlugin(t, "sleep 1000 & echo $! >${0%/*}/number; "+end)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := connectTest(ctx, dir); (err == nil) != ok {
			t.Errorf("%s: %v", end, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "number"))
		number, convErr := strconv.Atoi(strings.TrimSpace(string(text)))
		if err := errors.Join(err, convErr, unix.Kill(number, unix.SIGKILL)); err != nil {
			t.Error(err)
		}
	}
}

// The error of a plugin that fails is what the plugin says.
func TestPluginsSayWhyTheyFail(t *testing.T) {
	for script, want := range map[string]string{
		`echo '{"code": 100, "msg": "no address is left"}'; exit 1`: "no address is left",
		"echo no such bridge >&2; exit 3":                           `exit status 3: "no such bridge\n"`,
		"echo '{'":                                                  "unexpected end of JSON",
	} {
		if err := connectTest(t.Context(), writePlugin(t, script)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A network whose plugin says that it cannot connect pods is not ready, and the plugin's reason is kubelet's to see; a
// plugin of an earlier CNI is not asked.
func TestAPluginSaysThatItIsNotReady(t *testing.T) {
	const starts = `[ $CNI_COMMAND = STATUS ] || exit 2; echo '{"code": 50, "msg": "the agent starts"}'; exit 1`
	for _, test := range []struct{ version, script, want string }{
		{"1.1.0", starts, `network "pods" cannot connect pods: the agent starts`},
		{"1.1.0", "[ $CNI_COMMAND = STATUS ]", ""},
		{"1.0.0", starts, ""},
	} {
		dir := writePlugin(t, test.script)
		list := fmt.Sprintf(`{"cniVersion": %q, "name": "pods", "plugins": [{"type": "plugin"}]}`, test.version)
		if err := os.WriteFile(filepath.Join(dir, "pods.conflist"), []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		m := &Maker{CNI: CNI{ConfigDir: dir, PluginDirs: []string{dir}}}
		err := m.Ready(t.Context())
		if text := fmt.Sprint(err); text != cmp.Or(test.want, "<nil>") {
			t.Errorf("CNI %s: %v, want %q", test.version, err, test.want)
		}
	}
}
