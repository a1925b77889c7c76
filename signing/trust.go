package signing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
// empty ring, and a key that is removed meanwhile is not in it. An error names the file that is wrong.
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
		if err != nil {
			return err
		}
		one, err := ReadKeyRing(path)
		if _, gone := os.Lstat(path); errors.Is(gone, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(one.entities) != 1 || fingerprint(one.entities[0]) != strings.ToLower(d.Name()) {
			return fmt.Errorf("read key %s: want one key, with the file's name as its fingerprint", path)
		}
		ring.add(prefix, one.entities)
		return nil
	})
	if err != nil {
		return KeyRing{}, fmt.Errorf("read trust folder %s: %w", dir, err)
	}
	return ring, nil
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
	return KeyRing{slices.Concat(r.entities, other.entities), slices.Concat(r.prefixes, other.prefixes)}
}

// For returns the keys that are trusted for images of that name: those without a prefix, and
// those whose prefix is the name or names a folder above it, as example.com/a does for
// example.com/a/b but not for example.com/ab.
func (r KeyRing) For(name string) KeyRing {
	var ring KeyRing
	for i, prefix := range r.prefixes {
		if prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/") {
			ring.add(prefix, r.entities[i:i+1])
		}
	}
	return ring
}

// Trusted is what a person needs to know of a key in a ring.
type Trusted struct {
	Fingerprint string   `json:"fingerprint"`
	Prefix      string   `json:"prefix,omitempty"` // of the names that it is trusted for, "" for every name
	Users       []string `json:"users"`
	State       string   `json:"state"` // "valid", "revoked" or "expired"
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
	for _, e := range r.entities {
		if err := writeTrusted(folder, e); err != nil {
			return fmt.Errorf("trust key %s: %w", fingerprint(e), err)
		}
	}
	return nil
}

func writeTrusted(folder string, e *openpgp.Entity) (err error) {
	temp, err := os.CreateTemp(folder, ".new-")
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
