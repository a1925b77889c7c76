package images

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/signing"
)

// signedTwice imports two images that a key has signed and that have the same manifest.
func signedTwice(t *testing.T, s *Store) (one, other *Image, ring signing.KeyRing) {
	t.Helper()
	key, ring := newKey(t)
	var both []*Image
	for _, content := range []string{"one", "other"} {
		path := signedBy(t, key, archive(t, testManifest, dir("rootfs"), regular("rootfs/f", content)))
		image, err := s.Import(t.Context(), path, ring, nil)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, image)
	}
	return both[0], both[1], ring
}

// A good signature is not enough: what it signs must be this image, and its manifest.
func TestASignedFileMustBeTheImagesOwn(t *testing.T) {
	for name, tt := range map[string]struct {
		words string
		alter func(one, other *Image) error
	}{
		"nothing altered": {"", func(*Image, *Image) error { return nil }},
		"moved file": {"", func(one, _ *Image) error {
			return replace(filepath.Join(one.Dir, aciFile), filepath.Join(one.Dir, aciFile))
		}},
		"another image's file and signature": {"its signed file belongs to another image", func(one, other *Image) error {
			return errors.Join(replace(filepath.Join(one.Dir, aciFile), filepath.Join(other.Dir, aciFile)),
				replace(filepath.Join(one.Dir, sigFile), filepath.Join(other.Dir, sigFile)))
		}},
		"another image's signature": {"signature", func(one, other *Image) error {
			return replace(filepath.Join(one.Dir, sigFile), filepath.Join(other.Dir, sigFile))
		}},
		"altered manifest": {"its manifest has been altered since it was imported", func(one, _ *Image) error {
			altered := strings.Replace(testManifest, `"value":"1"`, `"value":"2"`, 1)
			return os.WriteFile(filepath.Join(one.Dir, manifestFile), []byte(altered), 0o600)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			one, other, ring := signedTwice(t, s)
			if err := tt.alter(one, other); err != nil {
				t.Fatal(err)
			}
			image, err := s.Get(one.ID)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time with what the first has stored
				_, err = s.Signer(image, ring)
				if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
					t.Errorf("%v, want %q", err, tt.words)
				}
			}
		})
	}
}

// replace puts a copy of a file in the place of another.
func replace(path, by string) error {
	data, err := os.ReadFile(by)
	return errors.Join(err, os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path))
}
