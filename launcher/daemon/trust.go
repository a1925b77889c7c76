package daemon

import (
	"errors"
	"fmt"
	"strings"

	"kurma.io/stager/signing"
)

// KeyRing reads the keys that may sign images: those of the configuration's files, and those of the folder that Trust
// fills.
func (d *Daemon) KeyRing() (signing.KeyRing, error) {
	files, err := signing.ReadKeyRing(d.config.TrustedKeys...)
	if err != nil {
		return signing.KeyRing{}, err
	}
	folder, err := signing.ReadTrust(d.config.TrustDirectory)
	return files.Join(folder), err
}

// Trust adds keys to the folder of trusted keys, for images with the name prefix or one below it; "" for all images.
// Whoever calls it has compared their fingerprints.
func (d *Daemon) Trust(keys signing.KeyRing, prefix string) error {
	return keys.Trust(d.config.TrustDirectory, prefix)
}

// Distrust removes the key with a fingerprint that ends in text, of at least 8 digits, from the folder of trusted keys:
// wherever it is in it, or unless prefix is nil for that prefix alone.
func (d *Daemon) Distrust(text string, prefix *string) error {
	ring, err := signing.ReadTrust(d.config.TrustDirectory)
	if err != nil {
		return err
	}
	found := keysEnding(ring, PlainFingerprint(text), prefix)
	if len(found) == 0 {
		return fmt.Errorf("no key %q in %s; keys in the files of trustedKeys are removed there", text,
			d.config.TrustDirectory)
	}
	var errs []error
	for _, key := range found {
		if key.Fingerprint != found[0].Fingerprint {
			return fmt.Errorf("%q is the end of several fingerprints", text)
		}
	}
	for _, key := range found {
		errs = append(errs, signing.Distrust(d.config.TrustDirectory, key.Prefix, key.Fingerprint))
	}
	return errors.Join(errs...)
}

// keysEnding returns the keys with a fingerprint that ends so, for the prefix unless that is nil.
func keysEnding(ring signing.KeyRing, end string, prefix *string) (found []signing.Trusted) {
	const enough = 8
	for _, key := range ring.Keys() {
		if len(end) >= enough && strings.HasSuffix(key.Fingerprint, end) && (prefix == nil || key.Prefix == *prefix) {
			found = append(found, key)
		}
	}
	return found
}

// PlainFingerprint removes what people write in fingerprints.
func PlainFingerprint(text string) string {
	text = strings.TrimPrefix(strings.ToLower(text), "0x")
	return strings.NewReplacer(" ", "", ":", "").Replace(text)
}
