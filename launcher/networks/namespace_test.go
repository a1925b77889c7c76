package networks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/internal/thread"
	"kurma.io/stager/tests/surroundings"
)

// In a pod's network all users may listen on all ports and send echo requests.
func TestANetworkNamespaceIsOpenToAllUsers(t *testing.T) {
	surroundings.Root(t)
	pin := filepath.Join(t.TempDir(), "netns")
	n, err := Make(pin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if n.Close(); Remove(pin) != nil {
			t.Error("the pin stays")
		}
	}()
	err = thread.New(func() error {
		wrong := n.Enter()
		for file, want := range map[string]string{"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"} {
			text, err := os.ReadFile("/proc/sys/net/ipv4/" + file)
			if got := strings.Join(strings.Fields(string(text)), " "); err != nil || got != want {
				wrong = errors.Join(wrong, fmt.Errorf("%s: %q, %w, want %q", file, got, err, want))
			}
		}
		return wrong
	})
	if err != nil {
		t.Error(err)
	}
}

// The groups that may send echo requests are those of the user namespace.
func TestGroupsOfAUserNamespace(t *testing.T) {
	for text, want := range map[string]string{
		"         0          0 4294967295\n":                              "0 2147483647",
		"         0     100000      65536\n":                              "0 65535",
		"      1000       1000          1\n         0     100000    10\n": "0 9",
		"      1000       1000          1\n":                              "1 0",
		"":                                                                "1 0",
	} {
		file := filepath.Join(t.TempDir(), "gid_map")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := mappedGroups(file); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
}

// A pin that cannot be looked at is no namespace that is gone: a plugin must not get an empty one instead.
func TestAPinThatCannotBeLookedAtIsNotGone(t *testing.T) {
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	if pinned, err := IsPinned(loop); pinned || !errors.Is(err, unix.ELOOP) {
		t.Errorf("pinned %t, %v, want %v", pinned, err, unix.ELOOP)
	}
	if _, err := Reopen(loop); !errors.Is(err, unix.ELOOP) {
		t.Errorf("reopened: %v, want %v", err, unix.ELOOP)
	}
	if pinned, err := IsPinned(loop + "-missing"); pinned || err != nil {
		t.Errorf("without a file: pinned %t, %v", pinned, err)
	}
}
