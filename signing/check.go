package signing

import (
	"bufio"
	"bytes"
	"crypto"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Limits of a detached signature.
const (
	maxSignature  = 256 << 10 // bytes
	maxSignatures = 8         // parts that are checked
)

// signatures are the parts of a detached signature: each is a signature by one key.
type signatures []part

type part struct {
	raw    []byte
	parsed *packet.Signature
}

func readSignatures(signature io.Reader) (signatures, error) {
	block, err := armor.Decode(bufio.NewReader(io.LimitReader(signature, maxSignature)))
	if err != nil || block.Type != openpgp.SignatureType {
		return nil, errors.New("verify signature: not an armored OpenPGP signature")
	}
	packets := packet.NewOpaqueReader(block.Body)
	var all signatures
	for len(all) < maxSignatures {
		opaque, err := packets.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("verify signature: %w", err)
		}
		parsed, err := opaque.Parse()
		sig, isSignature := parsed.(*packet.Signature)
		if err != nil || !isSignature {
			continue // of a later version, or something else
		}
		var raw bytes.Buffer
		if err := opaque.Serialize(&raw); err != nil {
			return nil, fmt.Errorf("verify signature: %w", err)
		}
		all = append(all, part{raw.Bytes(), sig})
	}
	if len(all) == 0 {
		return nil, errors.New("verify signature: no signature in the armored block")
	}
	return all, nil
}

// hash returns the states of the parts' hashes after the data, nil for one that counts never.
func (all signatures) hash(data io.Reader) (Digests, error) {
	hashes := make([]hash.Hash, len(all))
	writers := []io.Writer{io.Discard}
	for i, p := range all {
		if p.refuse() != nil {
			continue
		}
		h, err := p.parsed.PrepareVerify()
		if err != nil {
			return nil, fmt.Errorf("verify signature: %w", err)
		}
		hashes[i] = h
		writers = append(writers, h)
	}
	if _, err := io.Copy(io.MultiWriter(writers...), data); err != nil {
		return nil, err
	}
	digests := make(Digests, len(all))
	for i, h := range hashes {
		state, ok := h.(encoding.BinaryMarshaler)
		if !ok {
			continue
		}
		var err error
		if digests[i], err = state.MarshalBinary(); err != nil {
			return nil, fmt.Errorf("verify signature: %w", err)
		}
	}
	return digests, nil
}

// refuse returns why a part does not count, whatever key has made it.
func (p part) refuse() error {
	if p.parsed.SigType != packet.SigTypeBinary {
		return errors.New("verify signature: text signature, not one of a binary file")
	}
	strong := []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA224, crypto.SHA3_256, crypto.SHA3_512}
	if !slices.Contains(strong, p.parsed.Hash) {
		return fmt.Errorf("verify signature: digest %v is weak", p.parsed.Hash)
	}
	return nil
}

func (all signatures) check(ring KeyRing, digests Digests) (string, error) {
	if len(digests) != len(all) {
		return "", errors.New("verify signature: the digests are of another signature")
	}
	reason := ErrUnknownKey
	for i, p := range all {
		signer, err := p.check(ring, digests[i])
		if err == nil {
			return signer, nil
		}
		if errors.Is(reason, ErrUnknownKey) {
			reason = err
		}
	}
	return "", reason
}

// check checks the part with each copy of the signer's key in the ring. A revocation counts, whichever copy has it; the
// part is valid by any other copy: one may have expired, and another may say for how much longer the key is valid.
func (p part) check(ring KeyRing, digest []byte) (string, error) {
	if p.parsed.IssuerKeyId == nil {
		return "", ErrUnknownKey
	}
	if err := ring.damageOf(fmt.Sprintf("%016x", *p.parsed.IssuerKeyId)); err != nil {
		return "", fmt.Errorf("verify signature: %w", err)
	}
	if len(ring.entities.KeysById(*p.parsed.IssuerKeyId)) == 0 {
		return "", ErrUnknownKey
	}
	if err := p.refuse(); err != nil {
		return "", err
	}
	signer := ""
	var reason error
	for _, key := range ring.entities.KeysById(*p.parsed.IssuerKeyId) {
		copies := openpgp.EntityList{key.Entity}
		_, entity, err := openpgp.VerifyDetachedSignature(copies, &hashed{digest}, bytes.NewReader(p.raw), nil)
		switch {
		case errors.Is(err, pgperrors.ErrKeyRevoked):
			return "", fmt.Errorf("verify signature: %w", err)
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
			reason = errors.New("verify signature: the signer's key must not sign")
		case err != nil:
			reason = fmt.Errorf("verify signature: %w", err)
		default:
			signer = fingerprint(entity)
		}
	}
	if signer == "" {
		return "", reason
	}
	if err := ring.damageOf(signer); err != nil { // which may have said that the key is revoked
		return "", fmt.Errorf("verify signature: %w", err)
	}
	return signer, nil
}

// hashed stands for data of which the state of a hash is known. io.Copy calls WriteTo.
type hashed struct{ state []byte }

// Read implements io.Reader, and is not called.
func (h *hashed) Read([]byte) (int, error) {
	return 0, errors.New("the data is known by its hash only")
}

// WriteTo implements io.WriterTo: it sets the hash w to the state.
func (h *hashed) WriteTo(w io.Writer) (int64, error) {
	state, ok := w.(encoding.BinaryUnmarshaler)
	if !ok {
		return 0, errors.New("the hash cannot be set to a state")
	}
	return 0, state.UnmarshalBinary(h.state)
}
