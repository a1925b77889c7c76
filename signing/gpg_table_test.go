package signing

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

// gpgUser is a person with a gpg home of their own.
type gpgUser struct {
	t    *testing.T
	home string
}

func newGPGUser(t *testing.T) gpgUser {
	t.Helper()
	return gpgUser{t, gpgHome(t)}
}

func (u gpgUser) gpg(args ...string) []byte {
	u.t.Helper()
	return gpg(u.t, u.home, append([]string{"--pinentry-mode", "loopback", "--passphrase", ""}, args...)...)
}

// key makes a key and returns its fingerprint.
func (u gpgUser) key(name, algorithm string, args ...string) string {
	u.t.Helper()
	u.gpg(append([]string{"--quick-gen-key", name, algorithm}, args...)...)
	return u.fingerprint(name)
}

func (u gpgUser) fingerprint(name string) string {
	u.t.Helper()
	for line := range strings.SplitSeq(string(u.gpg("--with-colons", "--list-keys", name)), "\n") {
		if fields := strings.Split(line, ":"); fields[0] == "fpr" {
			return strings.ToLower(fields[9])
		}
	}
	u.t.Fatal("no fingerprint of", name)
	return ""
}

func (u gpgUser) file(content string) string {
	return writeFile(u.t, "data", func(b *bytes.Buffer) error { _, err := b.WriteString(content); return err })
}

// sign signs the message, by default detached and armored.
func (u gpgUser) sign(args ...string) []byte {
	u.t.Helper()
	return u.gpg(append(args, "--armor", "--detach-sign", "--output", "-", u.file(message))...)
}

func (u gpgUser) public(names ...string) string {
	u.t.Helper()
	exported := u.gpg(append([]string{"--armor", "--export"}, names...)...)
	return writeFile(u.t, "public.asc", func(b *bytes.Buffer) error { _, err := b.Write(exported); return err })
}

// revoke revokes a key with the certificate that gpg made with it.
func (u gpgUser) revoke(fingerprint string) {
	u.t.Helper()
	text, err := os.ReadFile(filepath.Join(u.home, "openpgp-revocs.d", strings.ToUpper(fingerprint)+".rev"))
	if err != nil {
		u.t.Fatal(err)
	}
	certificate := u.file(strings.ReplaceAll(string(text), ":-----BEGIN", "-----BEGIN"))
	u.gpg("--import", certificate)
}

// joined is one armored signature with the packets of several.
func joined(t *testing.T, signatures ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.SignatureType, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range signatures {
		block, err := armor.Decode(bytes.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		var packets bytes.Buffer
		if _, err := packets.ReadFrom(block.Body); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(packets.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// past is a time in which keys and signatures of a short life were valid. It stands still, else a slow gpg would make a
// key in the future of the next.
func past(args ...string) []string {
	return append([]string{"--faked-system-time", "20200101T000000!"}, args...)
}

// signedByGPG is a signature of message that real gpg has made, and the keys that are trusted.
type signedByGPG struct {
	signature []byte
	ring      string // a file
	signer    string // the primary key's fingerprint; "" if Verify must refuse
}

func TestVerifyJudgesGPGsSignatures(t *testing.T) {
	tests := []struct {
		name string
		make func(u gpgUser) signedByGPG
		want string // in the error
	}{
		{"RSA", func(u gpgUser) signedByGPG {
			key := u.key("a", "rsa3072", "sign", "never")
			return signedByGPG{u.sign(), u.public(), key}
		}, ""},
		{"Ed25519", func(u gpgUser) signedByGPG {
			key := u.key("a", "ed25519", "sign", "never")
			return signedByGPG{u.sign(), u.public(), key}
		}, ""},
		{"NIST P-256", func(u gpgUser) signedByGPG {
			key := u.key("a", "nistp256", "sign", "never")
			return signedByGPG{u.sign(), u.public(), key}
		}, ""},
		{"subkey", func(u gpgUser) signedByGPG {
			key := u.key("a", "ed25519", "cert", "never")
			u.gpg("--quick-add-key", key, "ed25519", "sign", "never")
			return signedByGPG{u.sign(), u.public(), key}
		}, ""},
		{"RSA subkey of an Ed25519 key", func(u gpgUser) signedByGPG {
			key := u.key("a", "ed25519", "cert", "never")
			u.gpg("--quick-add-key", key, "rsa2048", "sign", "never")
			return signedByGPG{u.sign(), u.public(), key}
		}, ""},
		{"key that was prolonged", func(u gpgUser) signedByGPG {
			u.gpg(past("--quick-gen-key", "a", "ed25519", "sign", "2020-02-01")...)
			key := u.fingerprint("a")
			signature := u.sign(past()...)
			u.gpg("--quick-set-expire", key, "0")
			return signedByGPG{signature, u.public(), key}
		}, ""},
		{"expired key", func(u gpgUser) signedByGPG {
			u.gpg(past("--quick-gen-key", "a", "ed25519", "sign", "2020-02-01")...)
			return signedByGPG{u.sign(past()...), u.public(), ""}
		}, "expired"},
		{"expired subkey", func(u gpgUser) signedByGPG {
			u.gpg(past("--quick-gen-key", "a", "ed25519", "cert", "never")...)
			u.gpg(past("--quick-add-key", u.fingerprint("a"), "ed25519", "sign", "2020-02-01")...)
			return signedByGPG{u.sign(past()...), u.public(), ""}
		}, "expired"},
		{"expired signature", func(u gpgUser) signedByGPG {
			u.gpg(past("--quick-gen-key", "a", "ed25519", "sign", "never")...)
			return signedByGPG{u.sign(past("--default-sig-expire", "30d")...), u.public(), ""}
		}, "expired"},
		{"revoked key", func(u gpgUser) signedByGPG {
			key := u.key("a", "ed25519", "sign", "never")
			signature := u.sign()
			u.revoke(key)
			return signedByGPG{signature, u.public(), ""}
		}, "revoked"},
		{"unknown key", func(u gpgUser) signedByGPG {
			u.key("a", "ed25519", "sign", "never")
			u.key("b", "ed25519", "sign", "never")
			return signedByGPG{u.sign("--local-user", "a"), u.public("b"), ""}
		}, ErrUnknownKey.Error()},
		{"wrong file", func(u gpgUser) signedByGPG {
			u.key("a", "ed25519", "sign", "never")
			return signedByGPG{u.gpg("--armor", "--detach-sign", "--output", "-", u.file("another file")), u.public(), ""}
		}, "signature"},
		{"SHA-1", func(u gpgUser) signedByGPG {
			u.key("a", "rsa2048", "sign", "never")
			return signedByGPG{u.sign("--digest-algo", "SHA1"), u.public(), ""}
		}, "weak"},
		{"RIPEMD-160", func(u gpgUser) signedByGPG {
			u.key("a", "rsa2048", "sign", "never")
			return signedByGPG{u.sign("--digest-algo", "RIPEMD160"), u.public(), ""}
		}, "no signature"}, // no code for this digest is linked, so it is not read
		{"clearsigned", func(u gpgUser) signedByGPG {
			u.key("a", "ed25519", "sign", "never")
			return signedByGPG{u.gpg("--clear-sign", "--output", "-", u.file(message)), u.public(), ""}
		}, "not an armored OpenPGP signature"},
		{"text mode", func(u gpgUser) signedByGPG {
			u.key("a", "ed25519", "sign", "never")
			return signedByGPG{u.sign("--textmode"), u.public(), ""}
		}, "text signature"},
		{"signed message", func(u gpgUser) signedByGPG {
			u.key("a", "ed25519", "sign", "never")
			return signedByGPG{u.gpg("--armor", "--sign", "--output", "-", u.file(message)), u.public(), ""}
		}, "not an armored OpenPGP signature"},
		{"two signatures, both known", func(u gpgUser) signedByGPG {
			u.key("a", "ed25519", "sign", "never")
			u.key("b", "rsa2048", "sign", "never")
			s := u.sign("--local-user", "a", "--local-user", "b")
			return signedByGPG{s, u.public(), either}
		}, ""},
		{"two signatures, the first known", func(u gpgUser) signedByGPG {
			key := u.key("a", "ed25519", "sign", "never")
			u.key("b", "rsa2048", "sign", "never")
			return signedByGPG{joined(u.t, u.sign("--local-user", "a"), u.sign("--local-user", "b")), u.public("a"), key}
		}, ""},
		{"two signatures, the second known", func(u gpgUser) signedByGPG {
			u.key("a", "ed25519", "sign", "never")
			key := u.key("b", "rsa2048", "sign", "never")
			return signedByGPG{joined(u.t, u.sign("--local-user", "a"), u.sign("--local-user", "b")), u.public("b"), key}
		}, ""},
		{"two signatures, the first of an expired key", func(u gpgUser) signedByGPG {
			u.gpg(past("--quick-gen-key", "a", "ed25519", "sign", "2020-02-01")...)
			old := u.sign(past("--local-user", "a")...)
			key := u.key("b", "ed25519", "sign", "never")
			return signedByGPG{joined(u.t, old, u.sign("--local-user", "b")), u.public(), key}
		}, ""},
		{"two signatures, the second of another file", func(u gpgUser) signedByGPG {
			key := u.key("a", "ed25519", "sign", "never")
			u.key("b", "ed25519", "sign", "never")
			other := u.gpg("--local-user", "b", "--armor", "--detach-sign", "--output", "-", u.file("another file"))
			return signedByGPG{joined(u.t, u.sign("--local-user", "a"), other), u.public(), key}
		}, ""}, // one that is good is enough, see Check
		{"a key that only certifies", func(u gpgUser) signedByGPG {
			u.key("a", "rsa2048", "sign", "never")
			signature := u.sign()
			u.key("b", "rsa2048", "cert", "never")
			return signedByGPG{signature, u.public("b"), ""}
		}, ErrUnknownKey.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := tt.make(newGPGUser(t))
			by, err := Verify(ringOf(t, s.ring), strings.NewReader(message), bytes.NewReader(s.signature))
			switch {
			case s.signer == "":
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Verify = %q, %v, want an error with %q", by, err, tt.want)
				}
			case err != nil || by != s.signer && s.signer != either:
				t.Errorf("Verify = %q, %v, want %s", by, err, s.signer)
			}
		})
	}
}

// either is any of the ring's keys.
const either = "any"

// Real gpg verifies what our keys sign, and refuses it for another file.
func TestGPGVerifiesOurSignatureOfThisFileOnly(t *testing.T) {
	u, key := newGPGUser(t), newKey(t)
	u.gpg("--import", publicFile(t, key))
	signature := u.file(signed(t, key))
	u.gpg("--verify", signature, u.file(message))
	cmd := exec.Command("gpg", "--homedir", u.home, "--batch", "--verify", signature, u.file("another file"))
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("BAD signature")) {
		t.Errorf("gpg: %v, %s", err, out)
	}
}

// Keys in the user's gpg agent sign, by their ID, fingerprint or name; gpg and we verify it.
func TestAKeyInTheAgentSigns(t *testing.T) {
	u := newGPGUser(t)
	key := u.key("agent@example.com", "ed25519", "sign", "never")
	other := u.key("other@example.com", "rsa2048", "sign", "never")
	t.Setenv("GNUPGHOME", u.home)
	data := u.file(message)
	for id, want := range map[string]string{key: key, strings.ToUpper(key[24:]): key, "agent@example.com": key, other: other} {
		file, err := os.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var signature bytes.Buffer
		if err := SignWithGPG(&signature, file, id); err != nil {
			t.Fatal(err)
		}
		by, err := Verify(ringOf(t, u.public()), strings.NewReader(message), bytes.NewReader(signature.Bytes()))
		if err != nil || by != want {
			t.Errorf("%s: Verify = %q, %v, want %s", id, by, err, want)
		}
		u.gpg("--verify", u.file(signature.String()), data)
	}
}

func TestSignWithGPGRefuses(t *testing.T) {
	u := newGPGUser(t)
	u.gpg(past("--quick-gen-key", "expired", "ed25519", "sign", "2020-02-01")...)
	u.key("certifies", "ed25519", "cert", "never")
	t.Setenv("GNUPGHOME", u.home)
	for _, id := range []string{"", "--output", "nobody@example.com", "expired", "certifies"} {
		var out bytes.Buffer
		err := SignWithGPG(&out, strings.NewReader(message), id)
		if err == nil || strings.Contains(err.Error(), "\n") || out.Len() > 0 {
			t.Errorf("%q: %v, want one line; written: %q", id, err, out.String())
		}
	}
	if err := SignWithGPG(new(bytes.Buffer), strings.NewReader(message), "nobody@example.com"); errors.Is(err, ErrUnknownKey) {
		t.Error("a key that gpg lacks is not one that the ring lacks")
	}
}
