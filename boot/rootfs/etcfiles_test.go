package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestResolverConfigurationIsTheDaemons(t *testing.T) {
	tests := map[string]struct {
		resolver []byte
		want     string
	}{
		"none":   {nil, "the image's\n"},
		"empty":  {[]byte{}, ""},
		"filled": {[]byte("nameserver 192.0.2.1\n"), "nameserver 192.0.2.1\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			file := filepath.Join(root, "etc/resolv.conf")
			if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("the image's\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
			if err := AddEtcFiles(root, test.resolver, ""); err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(file); err != nil || string(text) != test.want {
				t.Errorf("resolv.conf %q, %v; want %q", text, err, test.want)
			}
		})
	}
	empty := t.TempDir()
	if err := AddEtcFiles(empty, nil, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(empty, "etc/resolv.conf")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("resolv.conf of nothing: %v", err)
	}
}

// Something may be mounted on the file in a container already: the file stays the same one.
func TestResolverConfigurationIsUpdatedInPlace(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "etc/resolv.conf")
	if err := AddEtcFiles(root, []byte("nameserver 192.0.2.1\nnameserver 192.0.2.2\n"), ""); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	const want = "nameserver 192.0.2.3\n"
	if err := UpdateResolver(root, []byte(want)); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(file)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("another file: %v", err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != want {
		t.Errorf("resolv.conf %q, %v", text, err)
	}
	for name, make := range map[string]func(etc string) error{
		"none": func(string) error { return nil },
		"link": func(etc string) error { return os.Symlink("../run/resolv.conf", filepath.Join(etc, "resolv.conf")) },
	} {
		root := t.TempDir()
		etc := filepath.Join(root, "etc")
		if err := errors.Join(os.Mkdir(etc, 0o755), make(etc), UpdateResolver(root, []byte(want))); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(filepath.Join(etc, "resolv.conf"))
		text, readErr := os.ReadFile(filepath.Join(etc, "resolv.conf"))
		if err != nil || !info.Mode().IsRegular() || readErr != nil || string(text) != want {
			t.Errorf("resolv.conf in the place of %s: %q, %v, %v", name, text, err, readErr)
		}
	}
	folder := filepath.Join(t.TempDir(), "etc/resolv.conf")
	if err := errors.Join(os.MkdirAll(folder, 0o755), UpdateResolver(filepath.Dir(filepath.Dir(folder)), []byte(want))); err != nil {
		t.Errorf("with a volume's folder in its place: %v", err)
	}
}
