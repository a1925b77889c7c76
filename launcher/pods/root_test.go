package pods

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// A stager has the resolv.conf of its host, and none if the host has none: apps then keep their images'.
func TestTheStagersResolvConfIsTheHosts(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "resolv.conf")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.WriteFile(resolvConf, []byte("the image's"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeNames(root, hosts); err != nil {
		t.Fatal(err)
	}
	if text, err := root.ReadFile(resolvConf); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a resolv.conf of the host: %q, %v", text, err)
	}
	if err := os.WriteFile(hosts, []byte("nameserver 192.0.2.1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeNames(root, hosts); err != nil {
		t.Fatal(err)
	}
	if text, err := root.ReadFile(resolvConf); err != nil || string(text) != "nameserver 192.0.2.1\n" {
		t.Errorf("with a resolv.conf of the host: %q, %v", text, err)
	}
}

// A pod with a network of its own cannot ask a server on the host's loopback interface: it asks those that this one asks.
func TestAPodAsksServersThatItReaches(t *testing.T) {
	dir := t.TempDir()
	path := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stub := path("stub", "nameserver 127.0.0.53\noptions edns0\n")
	both := path("both", "nameserver ::1\nnameserver 192.0.2.1\n")
	resolved := path("resolved", "nameserver 192.0.2.53\n")
	none := filepath.Join(dir, "none")
	for _, tt := range []struct {
		hostNetwork           bool
		hosts, resolved, want string
	}{
		{false, stub, resolved, resolved},
		{true, stub, resolved, stub},
		{false, both, resolved, both},
		{false, stub, none, stub},
		{false, stub, stub, stub},
		{false, none, none, none},
	} {
		if got := namesFile(tt.hostNetwork, tt.hosts, tt.resolved); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
