package signing

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// signer is a GnuPG home with a key that certifies and a subkey that signs.
type signer struct {
	t    *testing.T
	home string
	main string // fingerprints
	sub  string
	data string
	time time.Time // of the last call of gpg
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t, home: gpgHome(t), time: time.Date(2024, time.January, 2, 0, 0, 0, 0, time.UTC)}
	s.gpg("--quick-gen-key", "tester <t@example.com>", "ed25519", "cert", "never")
	s.main = s.fingerprints()[0]
	s.gpg("--quick-add-key", s.main, "ed25519", "sign", "never")
	s.sub = s.fingerprints()[1]
	s.data = writeFile(t, "data", func(b *bytes.Buffer) error { _, err := b.WriteString(message); return err })
	return s
}

// gpg runs gpg a minute after its last call, however long that has taken: it refuses keys that were made in its future,
// and signatures of one key in the same second.
func (s *signer) gpg(args ...string) []byte {
	s.t.Helper()
	s.time = s.time.Add(time.Minute)
	return gpg(s.t, s.home, append([]string{"--yes", "--faked-system-time", s.time.Format("20060102T150405!"), "--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
}

// revokeSubkey revokes the subkey as compromised.
func (s *signer) revokeSubkey() {
	s.t.Helper()
	s.edit("key 1\nrevkey\ny\n1\n\ny\nsave\n")
}

// edit gives answers to gpg --edit-key.
func (s *signer) edit(answers string) {
	s.t.Helper()
	cmd := exec.Command("gpg", "--homedir", s.home, "--quiet", "--no-tty", "--pinentry-mode", "loopback", "--passphrase", "",
		"--command-fd", "0", "--status-fd", "2", "--edit-key", s.main)
	cmd.Stdin = strings.NewReader(answers)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("gpg --edit-key: %v\n%s", err, out)
	}
}

// revoke imports the revocation that gpg has prepared, which is made harmless by a colon.
func (s *signer) revoke() {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.home, "openpgp-revocs.d", strings.ToUpper(s.main)+".rev"))
	if err != nil {
		s.t.Fatal(err)
	}
	path := writeFile(s.t, "revocation", func(b *bytes.Buffer) error {
		_, err := b.Write(bytes.ReplaceAll(data, []byte(":-----BEGIN"), []byte("-----BEGIN")))
		return err
	})
	s.gpg("--import", path)
}

// expire has a key, or subkeys of it, expire in the past.
func (s *signer) expire(key string, subkeys ...string) {
	s.t.Helper()
	s.gpg(append([]string{"--quick-set-expire", key, "seconds=86400"}, subkeys...)...)
}

// fingerprints of the key and its subkeys, in lower case.
func (s *signer) fingerprints() []string {
	s.t.Helper()
	var all []string
	for line := range strings.SplitSeq(string(s.gpg("--list-keys", "--with-colons")), "\n") {
		if fields := strings.Split(line, ":"); fields[0] == "fpr" {
			all = append(all, strings.ToLower(fields[9]))
		}
	}
	return all
}

func (s *signer) sign(args ...string) string {
	s.t.Helper()
	return string(s.gpg(append(args, "--armor", "--output", "-", "--detach-sign", s.data)...))
}

func (s *signer) ring() KeyRing {
	s.t.Helper()
	exported := s.gpg("--export")
	return ringOf(s.t, writeFile(s.t, "ring", func(b *bytes.Buffer) error { _, err := b.Write(exported); return err }))
}

// TestCheckKnowsTheKeysOfNow makes digests once and checks them with what the keyring says
// later.
func TestCheckKnowsTheKeysOfNow(t *testing.T) {
	nothing := func(*signer) {}
	tests := []struct {
		name   string
		sign   []string
		good   bool // until change
		change func(s *signer)
		words  string // "" for a signature that stays good
	}{
		{"as it was", nil, true, nothing, ""},
		{"subkey revoked", nil, true, (*signer).revokeSubkey, "revoked"},
		{"key revoked", nil, true, (*signer).revoke, "revoked"},
		{"key expired", nil, true, func(s *signer) { s.expire(s.main) }, "expired"},
		{"subkey expired", nil, true, func(s *signer) { s.expire(s.main, "*") }, "expired"},
		{"signature expired", []string{"--default-sig-expire", "1d"}, false, nothing, "expired"},
		{"weak digest", []string{"--digest-algo", "SHA1"}, false, nothing, "SHA-1 is weak"},
		{"text", []string{"--textmode"}, false, nothing, "text signature"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSigner(t)
			sig := s.sign(tt.sign...)
			digests, err := Hash(strings.NewReader(message), strings.NewReader(sig))
			if err != nil {
				t.Fatal(err)
			}
			if by, err := Check(s.ring(), throughJSON(t, digests), strings.NewReader(sig)); (err == nil) != tt.good || tt.good && by != s.main {
				t.Errorf("before: %q, %v", by, err)
			}
			tt.change(s)
			by, err := Check(s.ring(), digests, strings.NewReader(sig))
			if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("Check = %q, %v; want %q", by, err, tt.words)
			}
			other, _ := Hash(strings.NewReader(message+"x"), strings.NewReader(sig))
			if by, err := Check(s.ring(), other, strings.NewReader(sig)); err == nil {
				t.Errorf("other data is signed by %s", by)
			}
		})
	}
}

// A ring may have a key twice, from before and after a change: a revocation counts in either order, and a key that was
// valid for longer in one of them is valid.
func TestEveryCopyOfAKeyCounts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(s *signer)
		words  string
	}{
		{"revoked", (*signer).revoke, "revoked"},
		{"expired", func(s *signer) { s.expire(s.main) }, ""},
	} {
		s := newSigner(t)
		sig := s.sign()
		digests, err := Hash(strings.NewReader(message), strings.NewReader(sig))
		if err != nil {
			t.Fatal(err)
		}
		before := s.ring()
		tt.change(s)
		after := s.ring()
		for _, both := range [][2]KeyRing{{before, after}, {after, before}} {
			var ring KeyRing
			ring.add("", both[0].entities)
			ring.add("", both[1].entities)
			by, err := Check(ring, digests, strings.NewReader(sig))
			if (err == nil) != (tt.words == "") || err != nil && !strings.Contains(err.Error(), tt.words) || err == nil && by != s.main {
				t.Errorf("%s: %q, %v; want %q", tt.name, by, err, tt.words)
			}
		}
	}
}

func throughJSON(t *testing.T, in Digests) (out Digests) {
	t.Helper()
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOneGoodPartIsEnough checks signatures of two keys in one file.
func TestOneGoodPartIsEnough(t *testing.T) {
	a, b := newSigner(t), newSigner(t)
	both := string(gpg(t, a.home, "--output", "-", "--enarmor", writeFileOf(t, dearmor(t, a, a.sign()), dearmor(t, b, b.sign()))))
	both = strings.NewReplacer("PGP ARMORED FILE", "PGP SIGNATURE").Replace(both)
	digests, err := Hash(strings.NewReader(message), strings.NewReader(both))
	if err != nil || len(digests) != 2 {
		t.Fatalf("%d digests, %v", len(digests), err)
	}
	for _, s := range []*signer{a, b} {
		if by, err := Check(s.ring(), digests, strings.NewReader(both)); err != nil || by != s.main {
			t.Errorf("Check = %q, %v; want %s", by, err, s.main)
		}
	}
	a.revoke()
	if by, err := Check(a.ring(), digests, strings.NewReader(both)); err == nil {
		t.Errorf("signed by %s, whose key is revoked", by)
	}
}

func dearmor(t *testing.T, s *signer, sig string) []byte {
	t.Helper()
	return gpg(t, s.home, "--output", "-", "--dearmor", writeFileOf(t, []byte(sig)))
}

func writeFileOf(t *testing.T, parts ...[]byte) string {
	t.Helper()
	return writeFile(t, "file", func(b *bytes.Buffer) error { _, err := b.Write(bytes.Join(parts, nil)); return err })
}
