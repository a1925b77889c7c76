package signing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestATrustFolderHasKeysForPrefixes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trust")
	if ring, err := ReadTrust(dir); err != nil || len(ring.Keys()) != 0 {
		t.Fatalf("a folder that does not exist: %v, %v", ring.Keys(), err)
	}
	all, team := newKey(t), newKey(t)
	if err := errors.Join(ringOf(t, publicFile(t, all)).Trust(dir, ""), ringOf(t, publicFile(t, team)).Trust(dir, "example.com/team")); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	ring, err := ReadTrust(link)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		team bool
	}{
		{"example.com/team", true},
		{"example.com/team/a/b", true},
		{"example.com/teams", false},
		{"example.com", false},
		{"other.com/example.com/team", false},
	}
	for _, tt := range tests {
		if got := ring.For(tt.name); !got.trusts(all.Fingerprint()) || got.trusts(team.Fingerprint()) != tt.team {
			t.Errorf("%s: %+v", tt.name, got.Keys())
		}
		by, err := Verify(ring.For(tt.name), strings.NewReader(message), strings.NewReader(signed(t, team)))
		if (err == nil) != tt.team || !tt.team && !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: signed by %q, %v", tt.name, by, err)
		}
	}
	if err := Distrust(dir, "", team.Fingerprint()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key is removed from where it is not: %v", err)
	}
	if err := Distrust(dir, "example.com/team", team.Fingerprint()); err != nil {
		t.Error(err)
	}
	if ring, err := ReadTrust(dir); err != nil || len(ring.Keys()) != 1 {
		t.Errorf("left: %+v, %v", ring.Keys(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "prefix.d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty folders stay: %v", err)
	}
}

// Keys and their folders may be removed while the trust folder is read. The first key is a FIFO, so that the test knows
// when the folder is being read, and reading goes on after the removal.
func TestKeysAreRemovedWhileTheyAreRead(t *testing.T) {
	dir := t.TempDir()
	keys := []*Key{newKey(t), newKey(t), newKey(t)}
	slices.SortFunc(keys, func(a, b *Key) int { return strings.Compare(a.Fingerprint(), b.Fingerprint()) })
	fifo := filepath.Join(dir, prefixKeys, "a", keys[0].Fingerprint())
	if err := errors.Join(ringOf(t, publicFile(t, keys[1])).Trust(dir, "a"), ringOf(t, publicFile(t, keys[2])).Trust(dir, "b"),
		syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() {
		ring, err := ReadTrust(dir)
		if err == nil && (len(ring.Keys()) != 1 || !ring.trusts(keys[0].Fingerprint())) {
			err = fmt.Errorf("keys %+v", ring.Keys())
		}
		read <- err
	}()
	first, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(Distrust(dir, "a", keys[1].Fingerprint()), Distrust(dir, "b", keys[2].Fingerprint()))
	if err := errors.Join(err, keys[0].WritePublic(first), first.Close(), <-read); err != nil {
		t.Error(err)
	}
}

func TestATrustFolderRefuses(t *testing.T) {
	key := newKey(t)
	public, err := os.ReadFile(publicFile(t, key))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"root.d/another-name", "key", "prefix.d/" + key.Fingerprint(), "more/a/" + key.Fingerprint()} {
		dir := t.TempDir()
		file := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, public, 0o600)); err != nil {
			t.Fatal(err)
		}
		ring, err := ReadTrust(dir)
		if all := ring.Keys(); err != nil || len(all) != 1 || all[0].State != "damaged" || ring.trusts(key.Fingerprint()) {
			t.Errorf("%s: %v, %v", path, all, err)
		}
	}
	for _, prefix := range []string{"../x", "/x", "a//b", "a/", ".hidden", "a/.b", "."} {
		if err := ringOf(t, publicFile(t, key)).Trust(t.TempDir(), prefix); err == nil {
			t.Errorf("prefix %q is taken", prefix)
		}
	}
}

// A file that is not the key of its name disables that key alone, wherever else the ring has it: it may have said that the
// key is revoked.
func TestADamagedKeyDisablesNoOther(t *testing.T) {
	good, bad := newKey(t), newKey(t)
	dir := t.TempDir()
	for _, key := range []*Key{good, bad} {
		if err := ringOf(t, publicFile(t, key)).Trust(dir, ""); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, rootKeys, bad.Fingerprint())
	if err := os.Truncate(file, 200); err != nil {
		t.Fatal(err)
	}
	ring, err := ReadTrust(dir)
	if err != nil {
		t.Fatal(err)
	}
	ring = ring.Join(ringOf(t, publicFile(t, bad))).For("example.com/a")
	verify := func(key *Key) error {
		_, err := Verify(ring, strings.NewReader(message), strings.NewReader(signed(t, key)))
		return err
	}
	if err := verify(good); err != nil {
		t.Error(err)
	}
	if err := verify(bad); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a key with a damaged file: %v", err)
	}
	if err := Distrust(dir, "", bad.Fingerprint()); err != nil {
		t.Error(err)
	}
	if ring, err := ReadTrust(dir); err != nil || len(ring.Keys()) != 1 {
		t.Errorf("%v, %v", ring.Keys(), err)
	}
}

// failingWriter fails at one write, as on a disk that has room for a smaller one afterwards.
type failingWriter struct{ left int }

func (w *failingWriter) Write(data []byte) (int, error) {
	if w.left--; w.left == -1 {
		return 0, unix.ENOSPC
	}
	return len(data), nil
}

// No error of a write is lost, whichever write it is.
func TestAKeyThatIsWrittenInPartIsAnError(t *testing.T) {
	key := newKey(t)
	for writes := range 100 {
		w := &failingWriter{left: writes}
		err := key.WritePublic(w)
		if w.left >= 0 && err == nil {
			return
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("write %d fails: %v", writes, err)
		}
	}
}

// What a killed process has left is removed, and the keys stay.
func TestLeftoversOfATrustFolderAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trust[")
	if err := RemoveLeftovers(dir); err != nil {
		t.Error(err)
	}
	ring := ringOf(t, publicFile(t, newKey(t)))
	for folder, prefix := range map[string]string{rootKeys: "", prefixKeys + "/a/b": "a/b"} {
		err := ring.Trust(dir, prefix)
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, folder, newKeys+"1"), nil, 0o600), RemoveLeftovers(dir)); err != nil {
			t.Fatal(err)
		}
		if entries, err := os.ReadDir(filepath.Join(dir, folder)); len(entries) != 1 || entries[0].Name() != ring.Keys()[0].Fingerprint || err != nil {
			t.Errorf("%v, %v", entries, err)
		}
	}
}
