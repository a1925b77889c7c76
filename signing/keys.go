package signing

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

const armorBegin = "-----BEGIN PGP"

// KeyRing is a set of public keys that are trusted. The zero value trusts no key.
type KeyRing struct {
	entities openpgp.EntityList
	prefixes []string // for each entity; "" for every name
	damaged  []damagedKey
}

// Key is a key pair that can sign.
type Key struct {
	entity *openpgp.Entity
}

// ReadKeyRing reads the public keys in the named files, armored or binary, as
// `gpg --export` writes them, with or without --armor. Private keys are
// refused, so that a keyring that others may read never holds one. A file
// without any key is an error.
func ReadKeyRing(paths ...string) (KeyRing, error) {
	var ring KeyRing
	for _, path := range paths {
		entities, err := readEntities(path)
		if err != nil {
			return KeyRing{}, fmt.Errorf("read keyring %s: %w", path, err)
		}
		for _, e := range entities {
			if e.PrivateKey != nil {
				return KeyRing{}, fmt.Errorf("read keyring %s: key %s is a private key", path, fingerprint(e))
			}
		}
		ring.add("", entities)
	}
	return ring, nil
}

func (r *KeyRing) add(prefix string, entities openpgp.EntityList) {
	for _, e := range entities {
		r.entities = append(r.entities, e)
		r.prefixes = append(r.prefixes, prefix)
	}
}

// ReadKey reads the one armored or binary private key in the file, which must
// not be protected by a passphrase.
func ReadKey(path string) (*Key, error) {
	entities, err := readEntities(path)
	if err != nil {
		return nil, fmt.Errorf("read signing key %s: %w", path, err)
	}
	if len(entities) != 1 || entities[0].PrivateKey == nil {
		return nil, fmt.Errorf("read signing key %s: want exactly one private key", path)
	}
	if entities[0].PrivateKey.Encrypted {
		return nil, fmt.Errorf("read signing key %s: the key is protected by a passphrase", path)
	}
	return &Key{entities[0]}, nil
}

// NewKey makes an Ed25519 key pair for the given name.
func NewKey(name string) (*Key, error) {
	entity, err := openpgp.NewEntity(name, "", "", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		return nil, fmt.Errorf("make signing key %q: %w", name, err)
	}
	return &Key{entity}, nil
}

// Fingerprint is the primary key's fingerprint in lower-case hexadecimal.
func (k *Key) Fingerprint() string { return fingerprint(k.entity) }

// WritePublic writes the public key, armored.
func (k *Key) WritePublic(w io.Writer) error {
	return writeArmored(w, openpgp.PublicKeyType, k.entity.Serialize)
}

// WritePrivate writes the key pair, armored and without a passphrase.
func (k *Key) WritePrivate(w io.Writer) error {
	return writeArmored(w, openpgp.PrivateKeyType, func(w io.Writer) error {
		return k.entity.SerializePrivate(w, nil)
	})
}

// writeArmored writes at once what it has encoded: armor.Encode loses errors of w.
func writeArmored(w io.Writer, blockType string, serialize func(io.Writer) error) error {
	var text bytes.Buffer
	enc, err := armor.Encode(&text, blockType, nil)
	if err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	if err := errors.Join(serialize(enc), enc.Close()); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	text.WriteByte('\n')
	if _, err := w.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// readEntities reads the keys in a file.
func readEntities(path string) (openpgp.EntityList, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseEntities(data)
}

// parseEntities reads one binary keyring or any number of armored blocks.
func parseEntities(data []byte) (openpgp.EntityList, error) {
	if len(data) == 0 {
		return nil, errors.New("no key found")
	}
	if !bytes.Contains(data, []byte(armorBegin)) {
		return openpgp.ReadKeyRing(bytes.NewReader(data))
	}
	return readArmoredBlocks(bufio.NewReader(bytes.NewReader(data)))
}

// readArmoredBlocks reads every key block; armor.Decode goes on where it
// stopped because it takes a bufio.Reader as it is.
func readArmoredBlocks(r *bufio.Reader) (openpgp.EntityList, error) {
	var all openpgp.EntityList
	for {
		block, err := armor.Decode(r)
		if errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode armor: %w", err)
		}
		if block.Type != openpgp.PublicKeyType && block.Type != openpgp.PrivateKeyType {
			return nil, fmt.Errorf("a %q block is not a key", block.Type)
		}
		entities, err := openpgp.ReadKeyRing(block.Body)
		if err != nil {
			return nil, err
		}
		all = append(all, entities...)
	}
}

func fingerprint(e *openpgp.Entity) string { return hex.EncodeToString(e.PrimaryKey.Fingerprint) }
