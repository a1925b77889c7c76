// Package signing makes and checks detached, armored OpenPGP signatures, the
// ones that `gpg --armor --detach-sign` writes and `gpg --verify` reads.
package signing

import (
	"bufio"
	"crypto"
	"errors"
	"fmt"
	"io"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// ErrUnknownKey means that no key of the keyring made the signature. The data
// was not read, so it may also have been altered.
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

// Verify checks an armored signature of the data, read to its end, and
// returns the fingerprint of the primary key that made it. A signature
// by a key that is revoked or expired does not count, and neither
// does a text signature, which would let line endings change. The error is
// ErrUnknownKey if the ring lacks the key.
func Verify(ring KeyRing, data, signature io.Reader) (keyFingerprint string, err error) {
	block, err := armor.Decode(bufio.NewReader(signature))
	if err != nil || block.Type != openpgp.SignatureType {
		return "", errors.New("verify signature: it is not an armored OpenPGP signature")
	}
	sig, signer, err := openpgp.VerifyDetachedSignature(ring.entities, data, block.Body, nil)
	if errors.Is(err, pgperrors.ErrUnknownIssuer) {
		return "", ErrUnknownKey
	}
	if err != nil {
		return "", fmt.Errorf("verify signature: %w", err)
	}
	if sig.SigType != packet.SigTypeBinary {
		return "", errors.New("verify signature: it is a text signature, not one of a binary file")
	}
	return fingerprint(signer), nil
}
