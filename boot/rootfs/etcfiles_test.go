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
