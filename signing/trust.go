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
	"time"

	"kurma.io/stager/internal/filelock"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// The folders of a trust folder, as rkt has them.
const (
	rootKeys   = "root.d"
	prefixKeys = "prefix.d"
)

// ReadTrust reads a trust folder, in which each file holds a public key:
//
//	root.d/FINGERPRINT             trusted for every name
//	prefix.d/PREFIX/FINGERPRINT    trusted for PREFIX and the names below it, see For
//
// The file's name is the fingerprint of the key in it. A folder that does not exist is an
// empty ring, and a key that is removed meanwhile is not in it. A file that is wrong disables
// the key of its name alone: Keys lists the key as damaged, and the error of each signature by
// the key names the file. An error says that the folder or a file could not be read this time.
func ReadTrust(dir string) (KeyRing, error) {
	var ring KeyRing
	if folder, err := filepath.EvalSymlinks(dir); err == nil {
		dir = folder // WalkDir follows no link
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			return err
		}
		prefix, err := prefixOf(dir, path)
		var one openpgp.EntityList
		if err == nil {
			one, err = readTrusted(path)
		}
		if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
		opening := (*fs.PathError)(nil)
		switch {
		case err == nil:
			ring.add(prefix, one)
		case errors.As(err, &opening) && !errors.Is(err, syscall.EIO):
			return err // it may be over at the next try
		default:
			ring.damaged = append(ring.damaged, damagedKey{strings.ToLower(d.Name()), prefix, err})
		}
		return nil
	})
	if err != nil {
		return KeyRing{}, fmt.Errorf("read trust folder %s: %w", dir, err)
	}
	return ring, nil
}

// damagedKey is a file of a trust folder that is not the key of its name.
type damagedKey struct {
	name, prefix string
	err          error // names the file
}

// damageOf returns the error of a damaged key with a fingerprint that ends so, or nil.
func (r KeyRing) damageOf(end string) error {
	for _, d := range r.damaged {
		if strings.HasSuffix(d.name, end) {
			return d.err
		}
	}
	return nil
}

// readTrusted reads a file of a trust folder.
func readTrusted(path string) (openpgp.EntityList, error) {
	one, err := ReadKeyRing(path)
	if err == nil && (len(one.entities) != 1 || fingerprint(one.entities[0]) != strings.ToLower(filepath.Base(path))) {
		err = fmt.Errorf("read key %s: want one key, with the file's name as its fingerprint", path)
	}
	return one.entities, err
}

func prefixOf(dir, path string) (string, error) {
	below, err := filepath.Rel(dir, filepath.Dir(path))
	if err != nil {
		return "", err
	}
	prefix, isPrefix := strings.CutPrefix(below, prefixKeys+"/")
	if below != rootKeys && !isPrefix {
		return "", fmt.Errorf("%s is neither in %s nor in a folder in %s", path, rootKeys, prefixKeys)
	}
	if below == rootKeys {
		return "", nil
	}
	return prefix, nil
}

// Join returns a ring of the keys of both.
func (r KeyRing) Join(other KeyRing) KeyRing {
	return KeyRing{
		slices.Concat(r.entities, other.entities), slices.Concat(r.prefixes, other.prefixes),
		slices.Concat(r.damaged, other.damaged),
	}
}

// For returns the keys that are trusted for images of that name: those without a prefix, and
// those whose prefix is the name or names a folder above it, as example.com/a does for
// example.com/a/b but not for example.com/ab.
func (r KeyRing) For(name string) KeyRing {
	var ring KeyRing
	is := func(prefix string) bool { return prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/") }
	for i, prefix := range r.prefixes {
		if is(prefix) {
			ring.add(prefix, r.entities[i:i+1])
		}
	}
	for _, d := range r.damaged {
		if is(d.prefix) {
			ring.damaged = append(ring.damaged, d)
		}
	}
	return ring
}

// Trusted is what a person needs to know of a key in a ring.
type Trusted struct {
	Fingerprint string   `json:"fingerprint"`
	Prefix      string   `json:"prefix,omitempty"` // of the names that it is trusted for, "" for every name
	Users       []string `json:"users"`
	State       string   `json:"state"` // "valid", "revoked", "expired" or "damaged", of a file that is not the key
}

// Keys lists the keys of a ring.
func (r KeyRing) Keys() []Trusted {
	all := make([]Trusted, 0, len(r.entities))
	now := time.Now()
	for i, e := range r.entities {
		key := Trusted{Fingerprint: fingerprint(e), Prefix: r.prefixes[i], Users: []string{}, State: "valid"}
		for name := range e.Identities {
			key.Users = append(key.Users, name)
		}
		slices.Sort(key.Users)
		if _, usable := e.SigningKey(now); !usable {
			key.State = "expired"
		}
		if e.Revoked(now) {
			key.State = "revoked"
		}
		all = append(all, key)
	}
	for _, d := range r.damaged {
		all = append(all, Trusted{Fingerprint: d.name, Prefix: d.prefix, Users: []string{}, State: "damaged"})
	}
	return all
}

// Trust writes each key of the ring into a trust folder, for names below the prefix, or for
// every name if it is "". It replaces the file of a key that is there already.
func (r KeyRing) Trust(dir, prefix string) error {
	folder, err := trustFolder(dir, prefix)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("trust key: %w", err)
	}
	release, err := lockFolder(folder)
	if err != nil {
		return fmt.Errorf("trust key: %w", err)
	}
	defer release()
	for _, e := range r.entities {
		if err := writeTrusted(folder, e); err != nil {
			return fmt.Errorf("trust key %s: %w", fingerprint(e), err)
		}
	}
	return nil
}

// newKeys is the beginning of the names of files that are being written.
const newKeys = ".new-"

// lockFolder waits until no other process writes keys into a folder, and keeps others away until release is called.
func lockFolder(folder string) (release func(), err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := filelock.Take(dir, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() { _ = dir.Close() }, nil
}

// RemoveLeftovers removes the files that a killed Trust has left in a trust folder.
func RemoveLeftovers(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		left, err := fs.Glob(os.DirFS(path), newKeys+"*")
		if err != nil || len(left) == 0 {
			return err
		}
		release, err := lockFolder(path)
		if err != nil {
			return err
		}
		defer release()
		var errs []error
		for _, file := range left { // its writer has given it its name, or was killed
			if err := os.Remove(filepath.Join(path, file)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove leftovers of trust folder: %w", err)
	}
	return nil
}

// writeTrusted writes a key, and gives the file its name when the key has been read back.
func writeTrusted(folder string, e *openpgp.Entity) (err error) {
	temp, err := os.CreateTemp(folder, newKeys)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()
	if err = (&Key{e}).WritePublic(temp); err == nil {
		err = errors.Join(temp.Chmod(0o644), temp.Sync())
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	written, err := ReadKeyRing(temp.Name())
	if err != nil {
		return err
	}
	if len(written.entities) != 1 || fingerprint(written.entities[0]) != fingerprint(e) {
		return errors.New("the file does not have the key that was written")
	}
	return os.Rename(temp.Name(), filepath.Join(folder, fingerprint(e)))
}

// Distrust removes the key with that fingerprint from a trust folder, for that prefix only; no power loss brings it
// back. It is an error wrapping fs.ErrNotExist if the key is not there.
func Distrust(dir, prefix, keyFingerprint string) error {
	folder, err := trustFolder(dir, prefix)
	if err != nil {
		return err
	}
	if strings.Trim(keyFingerprint, "0123456789abcdef") != "" || keyFingerprint == "" {
		return fmt.Errorf("%q is not a fingerprint", keyFingerprint)
	}
	opened, err := os.Open(folder)
	if err != nil {
		return fmt.Errorf("distrust key: %w", err)
	}
	defer opened.Close()
	if err = os.Remove(filepath.Join(folder, keyFingerprint)); err == nil {
		err = opened.Sync()
	}
	if err != nil {
		return fmt.Errorf("distrust key: %w", err)
	}
	for folder != dir && os.Remove(folder) == nil { // until one is in use
		folder = filepath.Dir(folder)
	}
	return nil
}

// trustFolder returns the folder of the keys of a prefix.
func trustFolder(dir, prefix string) (string, error) {
	if prefix == "" {
		return filepath.Join(dir, rootKeys), nil
	}
	if !filepath.IsLocal(prefix) || filepath.Clean(prefix) != prefix || strings.Contains("/"+prefix, "/.") {
		return "", fmt.Errorf("%q is not a prefix of image names", prefix)
	}
	return filepath.Join(dir, prefixKeys, prefix), nil
}
