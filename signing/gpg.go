package signing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// SignWithGPG writes a detached, armored signature of the data, which gpg makes with the key of that
// ID, fingerprint or user ID in the caller's gpg agent. The agent may ask for a passphrase on the
// caller's terminal. It also checks the signature, and fails if Verify would refuse it, because of the
// key's algorithm for instance. Gpg finds the keys in GNUPGHOME or ~/.gnupg.
func SignWithGPG(w io.Writer, data io.ReadSeeker, keyID string) error {
	if keyID == "" || strings.HasPrefix(keyID, "-") {
		return fmt.Errorf("sign with gpg: %q is not the ID of a key", keyID)
	}
	signature, err := runGPG(data,
		"--armor", "--digest-algo", "SHA512", "--local-user", keyID, "--detach-sign", "--output", "-")
	if err != nil {
		return fmt.Errorf("sign with gpg's key %s: %w", keyID, err)
	}
	public, err := runGPG(nil, "--armor", "--export", keyID)
	if err != nil {
		return fmt.Errorf("export gpg's key %s: %w", keyID, err)
	}
	entities, err := parseEntities(public)
	if err != nil {
		return fmt.Errorf("read gpg's key %s: %w", keyID, err)
	}
	var ring KeyRing
	ring.add("", entities)
	if _, err := data.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if _, err := Verify(ring, data, bytes.NewReader(signature)); err != nil {
		return fmt.Errorf("check signature of gpg's key %s: %w", keyID, err)
	}
	_, err = w.Write(signature)
	return err
}

// runGPG returns gpg's output. Its messages become the error.
func runGPG(stdin io.Reader, args ...string) ([]byte, error) {
	var messages bytes.Buffer
	cmd := exec.Command("gpg", append([]string{"--quiet", "--yes", "--no-textmode"}, args...)...)
	cmd.Stdin, cmd.Stderr = stdin, &messages
	out, err := cmd.Output()
	if _, ok := errors.AsType[*exec.ExitError](err); ok && messages.Len() > 0 {
		return nil, errors.New(strings.ReplaceAll(strings.TrimSpace(messages.String()), "\n", "; "))
	}
	return out, err
}
