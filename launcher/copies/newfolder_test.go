package copies

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// A new folder gets its owner and mode from the archive, an existing one does not.
func TestANewFolderIsAsItIsInTheArchive(t *testing.T) {
	surroundings.Root(t)
	from := t.TempDir()
	fill(t, from, [2]string{"file", "text"})
	if err := os.Chown(from, 70, 71); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(from, 0o3750); err != nil {
		t.Fatal(err)
	}
	archive := packed(t, from)
	for _, isNew := range []bool{true, false} {
		dir := filepath.Join(t.TempDir(), "to")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		target, err := Host().Target(dir, nil)
		if isNew {
			target, err = NewFolder(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = target.Unpack(bytes.NewReader(archive), true, func(warning string) { t.Error(warning) })
		_ = target.Close()
		var stat unix.Stat_t
		if err != nil || unix.Stat(dir, &stat) != nil {
			t.Fatal(err)
		}
		if same := stat.Uid == 70 && stat.Gid == 71 && stat.Mode&0o7777 == 0o3750; same != isNew {
			t.Errorf("new %v: owner %d:%d, mode %o", isNew, stat.Uid, stat.Gid, stat.Mode)
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "file")); string(text) != "text" {
			t.Errorf("new %v: the file has %q", isNew, text)
		}
	}
}

// packed is the archive of what a folder has.
func packed(t *testing.T, dir string) []byte {
	t.Helper()
	source, err := Host().Source(dir + "/.")
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var archive bytes.Buffer
	if err := source.Pack(t.Context(), &archive, "", func(string) {}); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// An archive that is cut off anywhere, also between two files, is an error.
func TestACutArchiveIsRefused(t *testing.T) {
	from := t.TempDir()
	fill(t, from, [2]string{"zeros", string(make([]byte, 4096))}, [2]string{"empty", ""})
	archive := packed(t, from)
	for name, open := range map[string]func() (*Target, error){
		"new folder":         func() (*Target, error) { return NewFolder(t.TempDir()) },
		"folder that exists": func() (*Target, error) { return Host().Target(t.TempDir(), nil) },
	} {
		for n := 0; n < len(archive); n += 512 {
			target, err := open()
			if err != nil {
				t.Fatal(err)
			}
			err = target.Unpack(bytes.NewReader(archive[:n]), true, func(string) {})
			_ = target.Close()
			if err == nil {
				t.Errorf("%s: %d of %d bytes are enough", name, n, len(archive))
			}
		}
	}
}
