package signing

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const message = "the data that is signed\n"

func newKey(t *testing.T) *Key {
	t.Helper()
	key, err := NewKey("test key")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writeFile(t *testing.T, name string, write func(*bytes.Buffer) error) string {
	t.Helper()
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func publicFile(t *testing.T, key *Key) string {
	return writeFile(t, "public.asc", func(b *bytes.Buffer) error { return key.WritePublic(b) })
}

func privateFile(t *testing.T, key *Key) string {
	return writeFile(t, "private.asc", func(b *bytes.Buffer) error { return key.WritePrivate(b) })
}

func ringOf(t *testing.T, paths ...string) KeyRing {
	t.Helper()
	ring, err := ReadKeyRing(paths...)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

func signed(t *testing.T, key *Key) string {
	t.Helper()
	var sig bytes.Buffer
	if err := Sign(&sig, strings.NewReader(message), key); err != nil {
		t.Fatal(err)
	}
	return sig.String()
}

func TestVerifyAcceptsOnlyKnownSigners(t *testing.T) {
	known, other := newKey(t), newKey(t)
	ring := ringOf(t, publicFile(t, known))
	tests := []struct {
		name, data, sig string
		unknown, ok     bool
	}{
		{name: "good", data: message, sig: signed(t, known), ok: true},
		{name: "altered", data: message + "x", sig: signed(t, known)},
		{name: "unknown key", data: message, sig: signed(t, other), unknown: true},
		{name: "empty signature", data: message},
		{name: "garbage", data: message, sig: "-----BEGIN PGP SIGNATURE-----\n\n????\n-----END PGP SIGNATURE-----\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			by, err := Verify(ring, strings.NewReader(tt.data), strings.NewReader(tt.sig))
			if (err == nil) != tt.ok || errors.Is(err, ErrUnknownKey) != tt.unknown {
				t.Fatalf("Verify = %q, %v", by, err)
			}
			if tt.ok && by != known.Fingerprint() {
				t.Errorf("signer %s, want %s", by, known.Fingerprint())
			}
		})
	}
}

// trusts reports whether the ring holds the primary key with that
// fingerprint, 40 or 64 lower-case hexadecimal digits, neither revoked nor expired now.
func (r KeyRing) trusts(keyFingerprint string) bool {
	now := time.Now()
	for _, e := range r.entities {
		if fingerprint(e) != keyFingerprint || e.Revoked(now) {
			continue
		}
		_, usable := e.SigningKey(now)
		return usable
	}
	return false
}

func TestAKeyRingTrustsItsOwnKeys(t *testing.T) {
	a, b := newKey(t), newKey(t)
	ring := ringOf(t, publicFile(t, a), publicFile(t, b))
	if !ring.trusts(a.Fingerprint()) || !ring.trusts(b.Fingerprint()) {
		t.Error("a key of the ring is not trusted")
	}
	if ring.trusts(newKey(t).Fingerprint()) || (KeyRing{}).trusts(a.Fingerprint()) {
		t.Error("a key outside the ring is trusted")
	}
	both := writeFile(t, "both.asc", func(w *bytes.Buffer) error { return errors.Join(a.WritePublic(w), b.WritePublic(w)) })
	if !ringOf(t, both).trusts(b.Fingerprint()) {
		t.Error("the second block of a file is not read")
	}
	if _, err := ReadKeyRing(privateFile(t, a)); err == nil {
		t.Error("a keyring with a private key is accepted")
	}
	empty := writeFile(t, "empty.asc", func(*bytes.Buffer) error { return nil })
	if _, err := ReadKeyRing(empty); err == nil {
		t.Error("an empty keyring is accepted")
	}
}

func TestReadKeyReturnsTheWrittenKey(t *testing.T) {
	key := newKey(t)
	got, err := ReadKey(privateFile(t, key))
	if err != nil {
		t.Fatal(err)
	}
	if got.Fingerprint() != key.Fingerprint() {
		t.Errorf("fingerprint %s, want %s", got.Fingerprint(), key.Fingerprint())
	}
	if _, err := ReadKey(publicFile(t, key)); err == nil {
		t.Error("a public key is accepted for signing")
	}
}

// gpg runs GnuPG with a home of its own.
func gpg(t *testing.T, home string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", home, "--batch", "--quiet", "--no-tty"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gpg %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

func gpgHome(t *testing.T) string {
	t.Helper()
	// A socket's path must be short, so this is not t.TempDir.
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run()
		_ = os.RemoveAll(home)
	})
	return home
}

func TestGPGVerifiesOurs(t *testing.T) {
	home, key := gpgHome(t), newKey(t)
	data := writeFile(t, "data", func(b *bytes.Buffer) error { _, err := b.WriteString(message); return err })
	sig := writeFile(t, "data.asc", func(b *bytes.Buffer) error { _, err := b.WriteString(signed(t, key)); return err })
	gpg(t, home, "--import", publicFile(t, key))
	gpg(t, home, "--verify", sig, data)
}

func TestWeVerifyGPGs(t *testing.T) {
	for _, algo := range []string{"ed25519", "rsa2048"} {
		t.Run(algo, func(t *testing.T) {
			home := gpgHome(t)
			gpg(t, home, "--passphrase", "", "--quick-gen-key", "tester <t@example.com>", algo, "sign", "never")
			data := writeFile(t, "data", func(b *bytes.Buffer) error { _, err := b.WriteString(message); return err })
			sig := gpg(t, home, "--armor", "--detach-sign", "--output", "-", data)
			for _, armored := range [][]string{{"--armor"}, {}} {
				exported := gpg(t, home, append(armored, "--export")...)
				path := writeFile(t, "ring", func(b *bytes.Buffer) error { _, err := b.Write(exported); return err })
				by, err := Verify(ringOf(t, path), strings.NewReader(message), bytes.NewReader(sig))
				if err != nil || !ringOf(t, path).trusts(by) {
					t.Errorf("Verify = %q, %v", by, err)
				}
			}
			secret := gpg(t, home, "--armor", "--export-secret-keys")
			if _, err := ReadKey(writeFile(t, "key", func(b *bytes.Buffer) error { _, err := b.Write(secret); return err })); err != nil {
				t.Error(err)
			}
		})
	}
}
