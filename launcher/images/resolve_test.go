package images

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/surroundings"
)

// layerOf makes a layer: NAME for a file with the layer's number, NAME/ for a folder, NAME/! for an opaque one, NAME? for
// a whiteout, NAME>TARGET for a symbolic link.
func layerOf(t *testing.T, number, text string) *Image {
	t.Helper()
	image := &Image{Dir: t.TempDir()}
	if err := os.Mkdir(image.Rootfs(), 0o755); err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(text) {
		name, target, isLink := strings.Cut(word, ">")
		at := filepath.Join(image.Rootfs(), strings.TrimRight(name, "/!?"))
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case isLink:
			err = errors.Join(err, os.Symlink(target, at))
		case strings.HasSuffix(word, "/"):
			err = errors.Join(err, os.MkdirAll(at, 0o755))
		case strings.HasSuffix(word, "/!"):
			err = errors.Join(err, os.MkdirAll(at, 0o755), unix.Lsetxattr(at, "trusted.overlay.opaque", []byte("y"), 0))
		case strings.HasSuffix(word, "?"):
			err = errors.Join(err, unix.Mknod(at, unix.S_IFCHR, 0))
		default:
			err = errors.Join(err, os.WriteFile(at, []byte(number), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return image
}

// The path of an account file leads where the app would find the file: no link of the image leads to the host's files.
func TestFilesOfLayersAreThoseOfAnOverlay(t *testing.T) {
	surroundings.Root(t)
	many := "etc/passwd>/l0 end"
	for i := range maxLinkNames {
		many += " l" + strings.Repeat("0", i+1) + ">/l" + strings.Repeat("0", i+2)
	}
	for name, test := range map[string]struct {
		layers []string // the lowest first
		want   string   // PATH@LAYER, PATH for none, or an error
	}{
		"none":                       {[]string{"etc/", "bin"}, "/etc/passwd"},
		"upper file":                 {[]string{"etc/passwd", "etc/passwd", "etc/"}, "/etc/passwd@1"},
		"absolute link":              {[]string{"nix/passwd etc/passwd>/nix/passwd"}, "/nix/passwd@0"},
		"relative link":              {[]string{"nix/passwd", "etc/passwd>../nix/passwd"}, "/nix/passwd@0"},
		"link above the root":        {[]string{"nix/passwd etc/passwd>../../../nix/passwd"}, "/nix/passwd@0"},
		"linked folder":              {[]string{"etc>/system/etc", "system/etc/passwd"}, "/system/etc/passwd@1"},
		"link over a folder":         {[]string{"etc/passwd", "etc>/system system/"}, "/system/passwd"},
		"folder over a link":         {[]string{"etc>/proc/self/cwd", "etc/"}, "/etc/passwd"},
		"folder over another's link": {[]string{"etc>/system system/passwd", "etc/"}, "/etc/passwd"},
		"file in a folder's place":   {[]string{"etc/passwd", "etc", "etc/"}, "/etc/passwd"},
		"whiteout":                   {[]string{"etc/passwd", "etc/passwd?"}, "/etc/passwd"},
		"whiteout of the folder":     {[]string{"etc/passwd", "etc?", "etc/"}, "/etc/passwd"},
		"whiteout of the link":       {[]string{"etc/passwd", "etc/passwd>/x", "etc/passwd? x"}, "/etc/passwd"},
		"opaque folder":              {[]string{"etc/passwd", "etc/!"}, "/etc/passwd"},
		"opaque folder above":        {[]string{"a/etc/passwd etc>/a/etc", "a/! a/etc/"}, "/a/etc/passwd"},
		"dangling link":              {[]string{"etc/passwd", "etc/passwd>/host/passwd"}, "/host/passwd"},
		"links in a circle":          {[]string{"etc/passwd>/etc/passwd"}, "path passes through symbolic links of more than 64 names"},
		"too many links":             {[]string{many}, "path passes through symbolic links of more than 64 names"},
	} {
		t.Run(name, func(t *testing.T) {
			var layers []*Image
			for i, text := range test.layers {
				layers = append([]*Image{layerOf(t, string(rune('0'+i)), text)}, layers...)
			}
			got, err := Resolve(layers, "/etc/passwd", nil)
			text, readErr := readTop(layers, "etc/passwd")
			if err != nil {
				got = err.Error()
			} else if readErr == nil {
				got += "@" + string(text)
			}
			if got != test.want {
				t.Errorf("%s, want %s; %v", got, test.want, readErr)
			}
		})
	}
}

// What a mount covers are not the layers' links.
func TestMountsCoverTheLayers(t *testing.T) {
	layers := []*Image{layerOf(t, "0", "var/run>/run run/ data/link>/run")}
	for _, test := range []struct{ path, mounted, want string }{
		{"/var/run/secrets/x/", "/run", "/run/secrets/x"},
		{"/var/run/secrets", "/var", "/var/run/secrets"},
		{"/var/run", "/var/run/below", "/run"},
		{"/var/run", "/var/run", "/var/run"},
		{"/data/link", "/data/li", "/run"},
		{"/data/link/../x", "/data", "/data/x"},
		{"/", "", "/"},
	} {
		if got, err := Resolve(layers, test.path, []string{test.mounted}); got != test.want || err != nil {
			t.Errorf("%s with a mount at %s: %s, %v, want %s", test.path, test.mounted, got, err, test.want)
		}
	}
}

// What is found does not depend on what was looked up before.
func TestARootIsTheSameInAnyOrder(t *testing.T) {
	surroundings.Root(t)
	layers := []*Image{
		layerOf(t, "2", "a/b/g w/x/ l/"), layerOf(t, "1", "a/b/! a/b/c/h w? l>a f"), layerOf(t, "0", "a/b/c/f a/d/e/f w/x/y l/m f/n"),
	}
	paths := strings.Fields("/ /a /a/b/c /a/b/c/f /a/b/c/h /a/b/g /a/d /a/d/e/f /w/x /w/x/y /l /l/m /f /f/n /none/x")
	look := func(m *Merged, path string) string {
		found, info, err := m.find(path)
		if err != nil {
			return err.Error()
		}
		text, _ := os.ReadFile(found)
		return info.Mode().String() + string(text)
	}
	for _, path := range paths {
		alone := NewMerged(layers)
		want := look(alone, path)
		alone.Close()
		for _, first := range paths {
			m := NewMerged(layers)
			look(m, first)
			for range 2 {
				if got := look(m, path); got != want {
					t.Errorf("%s after %s: %s, want %s", path, first, got, want)
				}
			}
			m.Close()
		}
	}
}
