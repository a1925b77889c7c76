package images

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kurma.io/stager/signing"
	"kurma.io/stager/tests/surroundings"

	"golang.org/x/sys/unix"
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
	surroundings.Root(t)
	for name, tt := range map[string]struct {
		words string
		alter func(one, other *Image) error
	}{
		"nothing altered": {"", func(*Image, *Image) error { return nil }},
		"moved file": {"", func(one, _ *Image) error {
			return replace(filepath.Join(one.Dir, aciFile), filepath.Join(one.Dir, aciFile))
		}},
		"another image's file and signature": {"signed file belongs to another image", func(one, other *Image) error {
			return errors.Join(replace(filepath.Join(one.Dir, aciFile), filepath.Join(other.Dir, aciFile)),
				replace(filepath.Join(one.Dir, sigFile), filepath.Join(other.Dir, sigFile)))
		}},
		"another image's signature": {"signature", func(one, other *Image) error {
			return replace(filepath.Join(one.Dir, sigFile), filepath.Join(other.Dir, sigFile))
		}},
		"altered manifest": {"manifest altered since the import", func(one, _ *Image) error {
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

// A stager and a plugin have the powers of the host's root.
func TestStagersAndPluginsMustBeTrusted(t *testing.T) {
	surroundings.Root(t)
	const (
		noApp   = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/a"}`
		noExec  = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/a","app":{"user":"0","group":"0"}}`
		program = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/a","app":{"exec":["/a"],"user":"0","group":"0"}}`
		built   = `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"example.com/a","dependencies":[{"imageName":"example.com/b"}],"app":{"exec":["/a"],"user":"0","group":"0"}}`
	)
	for name, tt := range map[string]struct {
		manifest       string
		altered        bool
		trusted        string // the names that the key is trusted for, "" for none
		stager, plugin string // what the errors say, "" for none
	}{
		"trusted":               {program, false, "example.com", "", ""},
		"without an exec":       {noExec, false, "example.com", "no app with an exec", ""},
		"without an app":        {noApp, false, "example.com", "no app with an exec", "no app"},
		"dependencies":          {built, false, "example.com", "dependencies", "resolve dependency"},
		"altered":               {program, true, "example.com", "altered since", "files altered since"},
		"a key for other names": {program, false, "example.com/b", "unknown", "unknown"},
		"no key":                {program, false, "", "unknown", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			key, ring := newKey(t)
			s := newStore(t)
			image, err := s.Import(t.Context(), signedBy(t, key, archive(t, tt.manifest, dir("rootfs"), regular("rootfs/f", "good"))), ring, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.altered {
				if err := os.WriteFile(filepath.Join(image.Rootfs(), "f"), []byte("evil"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			ring = trustedFor(t, key, tt.trusted)
			checkTrust(t, "stager", s.TrustStager(image, ring), tt.stager)
			checkTrust(t, "plugin", s.Catalog(ring, nil).trustPlugin(image), tt.plugin)
		})
	}
}

// A plugin has dependencies, as Kurma's own one for CNI: each image must be signed for its own name, also a dependency's dependency.
func TestThePluginsDependenciesMustBeTrusted(t *testing.T) {
	surroundings.Root(t)
	depending := func(name, on string) string {
		return `{"acKind":"ImageManifest","acVersion":"0.8.11","name":"` + name + `","app":{"exec":["/a"],"user":"0","group":"0"}` + on + `}`
	}
	const on = `,"dependencies":[{"imageName":"%s"}]`
	for name, tt := range map[string]struct {
		base, lowest string // their names
		signed       [3]bool
		altered      string // the name of the image whose files are altered
		words        string
	}{
		"each is signed":                      {"example.com/b", "example.com/c", [3]bool{true, true, true}, "", ""},
		"the top is not":                      {"example.com/b", "example.com/c", [3]bool{false, true, true}, "", ": not signed"},
		"the dependency is not":               {"example.com/b", "example.com/c", [3]bool{true, false, true}, "", "dependency example.com/b"},
		"the lowest is not":                   {"example.com/b", "example.com/c", [3]bool{true, true, false}, "", "dependency example.com/c"},
		"the key is for other names":          {"example.com/b", "elsewhere.org/c", [3]bool{true, true, true}, "", "dependency elsewhere.org/c"},
		"the dependency's files were altered": {"example.com/b", "example.com/c", [3]bool{true, true, true}, "example.com/b", "dependency example.com/b"},
	} {
		t.Run(name, func(t *testing.T) {
			key, anyName := newKey(t)
			s := newStore(t)
			var top *Image
			for i, text := range []string{
				depending("example.com/a", fmt.Sprintf(on, tt.base)), depending(tt.base, fmt.Sprintf(on, tt.lowest)), depending(tt.lowest, ""),
			} {
				data := archive(t, text, dir("rootfs"), regular("rootfs/f", "good"))
				path := writeFile(t, "image.aci", data)
				if tt.signed[i] {
					path = signedBy(t, key, data)
				}
				image, err := s.Import(t.Context(), path, anyName, nil)
				if err != nil {
					t.Fatal(err)
				}
				if top == nil {
					top = image
				}
				if image.Manifest.Name == tt.altered {
					if err := os.WriteFile(filepath.Join(image.Rootfs(), "f"), []byte("evil"), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			checkTrust(t, "plugin", s.Catalog(trustedFor(t, key, "example.com"), nil).trustPlugin(top), tt.words)
		})
	}
}

// A signed import of an unsigned image compares all files before it takes the lock that other imports need.
func TestFilesAreComparedWithoutTheLock(t *testing.T) {
	s := newStore(t)
	data := archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "good"))
	image, err := s.importData(t, data)
	if err != nil {
		t.Fatal(err)
	}
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(watch), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(watch, filepath.Join(image.Rootfs(), "f"), unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	path, ring := signedImage(t, data)
	var lock *os.File
	locked, imported := make(chan error, 1), make(chan error)
	takeLock := func(int64, int64) {
		if lock == nil {
			var err error
			lock, err = s.lockStore(unix.LOCK_EX)
			locked <- err
		}
	}
	go func() {
		_, err := s.Import(t.Context(), path, ring, takeLock)
		imported <- err
	}()
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	err = events.SetReadDeadline(time.Now().Add(10 * time.Second))
	if err == nil {
		_, err = events.Read(make([]byte, 4096))
	}
	if err != nil {
		t.Errorf("no file is read while another process has the lock: %v", err)
	}
	if err := errors.Join(lock.Close(), <-imported); err != nil {
		t.Fatal(err)
	}
	if image, err = s.Get(image.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Verify(image, ring); err != nil {
		t.Error(err)
	}
}

// An image that is altered after its files were compared is refused.
func TestWhatIsAlteredAfterTheComparisonIsRefused(t *testing.T) {
	s := newStore(t)
	image, err := s.importData(t, archive(t, testManifest, dir("rootfs"), regular("rootfs/f", "good")))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := seal(image.Rootfs())
	if err == nil {
		err = os.WriteFile(filepath.Join(image.Rootfs(), "f"), []byte("evil"), 0o644)
	}
	if err == nil {
		err = writeRecord(image.Dir, Record{Head: &Head{}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := adoptSignature(image.Dir, image, sealed, signing.KeyRing{}); err == nil || !strings.Contains(err.Error(), "files altered") {
		t.Errorf("%v", err)
	}
}

// trustedFor returns a ring in which the key is trusted for a name and the names below it, or for none.
func trustedFor(t *testing.T, key *signing.Key, name string) signing.KeyRing {
	t.Helper()
	trust := t.TempDir()
	if name != "" {
		folder := filepath.Join(trust, "prefix.d", name)
		var public bytes.Buffer
		if err := errors.Join(key.WritePublic(&public), os.MkdirAll(folder, 0o755),
			os.WriteFile(filepath.Join(folder, key.Fingerprint()), public.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	ring, err := signing.ReadTrust(trust)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func checkTrust(t *testing.T, as string, err error, words string) {
	t.Helper()
	if (err == nil) != (words == "") || err != nil && !strings.Contains(err.Error(), words) {
		t.Errorf("as a %s: %v, want %q", as, err, words)
	}
}
