package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is written where the app finds it at its path, and nowhere else, whatever links the image has.
func TestAFileIsWrittenInTheRoot(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		image func(root string) error
		path  string
		at    string // where the file is in the root
		want  string // the error
	}{
		"new folders": {nil, "/run/product/info", "run/product/info", ""},
		"a file":      {func(root string) error { return os.WriteFile(root+"/info", []byte("the image's, longer"), 0o600) }, "/info", "info", ""},
		"a link":      {func(root string) error { return os.Symlink(outside+"/info", root+"/info") }, "/info", "info", ""},
		"a folder's link": {func(root string) error {
			return errors.Join(os.Mkdir(root+"/real", 0o755), os.Symlink("/real", root+"/run"))
		}, "/run/info", "real/info", ""},
		"a link to outside": {func(root string) error { return os.Symlink(outside, root+"/run") }, "/run/info", "", "write /run/info: open its folder"},
		"a climbing link": {func(root string) error {
			return errors.Join(os.Mkdir(root+"/real", 0o755), os.Symlink("../../../../../../real", root+"/run"))
		}, "/run/info", "real/info", ""},
		"a climbing path": {nil, "/../../info", "info", ""},
		"a folder":        {func(root string) error { return os.MkdirAll(root+"/info/full", 0o755) }, "/info", "", "write /info: replace"},
		"a file's folder": {func(root string) error { return os.WriteFile(root+"/run", nil, 0o600) }, "/run/info", "", "write /run/info: open its folder"},
		"the root":        {nil, "/", "", "want an absolute path"},
		"a relative path": {nil, "info", "", "want an absolute path"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if test.image != nil {
				if err := test.image(root); err != nil {
					t.Fatal(err)
				}
			}
			err := WriteFile(root, test.path, []byte("text\n"), 0o640)
			if _, err := os.Lstat(outside + "/info"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("outside of the root: %v", err)
			}
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(root, test.at)
			info, err := os.Lstat(file)
			if text, read := os.ReadFile(file); string(text) != "text\n" || errors.Join(err, read) != nil || info.Mode() != 0o640 {
				t.Errorf("%s has %q, %v, %v, %v", file, text, info.Mode(), err, read)
			}
		})
	}
}
