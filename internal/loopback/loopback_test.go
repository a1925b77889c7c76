package loopback

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Root alone can connect to a socket, which replaces that of a killed server, but neither that of a live one nor a file.
func TestTheSocketIsRoots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "cri.sock")
	listener, err := Socket(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := Socket(path); err == nil {
		t.Error("the socket of a live server is replaced")
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = listener.Close()
	if listener, err = Socket(path); err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Socket(path)
	if text, _ := os.ReadFile(path); err == nil || string(text) != "kept" {
		t.Errorf("a file is replaced: %q, %v", text, err)
	}
}

func TestAddressesAreOfThisMachine(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:9101": true, "127.9.9.9:1": true, "[::1]:9101": true, "unix:///run/a.sock": true,
		"": false, "unix://": false, "unix://a.sock": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false,
		"localhost:1": false, "127.0.0.1": false, "/run/a.sock": false,
	} {
		if err := Check(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
}
