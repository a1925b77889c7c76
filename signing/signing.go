// Package signing makes and checks detached, armored OpenPGP signatures, the
// ones that `gpg --armor --detach-sign` writes and `gpg --verify` reads.
package signing

import (
	"crypto"
	"errors"
	"fmt"
	"io"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// ErrUnknownKey means that no key of the keyring made the signature. The data
// may also have been altered.
var ErrUnknownKey = errors.New("signed by an unknown key")

// Sign writes the key's signature of the data, read to its end.
func Sign(w io.Writer, data io.Reader, key *Key) error {
	config := &packet.Config{DefaultHash: crypto.SHA512}
	if err := openpgp.ArmoredDetachSign(w, key.entity, data, config); err != nil {
		return fmt.Errorf("sign with key %s: %w", key.Fingerprint(), err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// Verify checks an armored signature of the data, read to its end, as Check does.
func Verify(ring KeyRing, data, signature io.Reader) (keyFingerprint string, err error) {
	packets, err := readSignatures(signature)
	if err != nil {
		return "", err
	}
	digests, err := packets.hash(data)
	if err != nil {
		return "", err
	}
	return packets.check(ring, digests)
}

// Digests is what Check needs of signed data, see Hash. It can be written as JSON.
type Digests [][]byte

// Hash reads data to its end and returns what Check needs of it, whichever key has made the
// armored signature. It belongs to this signature only.
func Hash(data, signature io.Reader) (Digests, error) {
	packets, err := readSignatures(signature)
	if err != nil {
		return nil, err
	}
	return packets.hash(data)
}

// Check checks an armored signature of the data that the digests were made of, with the
// time and the keys of now, and returns the fingerprint of the primary key that made it. If
// the signature has several parts, one that is good is enough. One by a key or subkey that is
// revoked or expired does not count, nor one that has expired, one with a weak digest, or a
// text signature, which would let line endings change. The error is ErrUnknownKey if the ring
// lacks the key of each part.
func Check(ring KeyRing, digests Digests, signature io.Reader) (keyFingerprint string, err error) {
	packets, err := readSignatures(signature)
	if err != nil {
		return "", err
	}
	return packets.check(ring, digests)
}
