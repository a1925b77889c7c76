package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
)

// savedCredentials are those of `docker login` and `skopeo login`, which without XDG_RUNTIME_DIR writes them where only
// containers-auth.json(5) says.
func savedCredentials() authn.Keychain {
	if os.Getenv("XDG_RUNTIME_DIR") != "" {
		return authn.DefaultKeychain
	}
	return authn.NewMultiKeychain(authn.DefaultKeychain,
		authFile(fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid())))
}

// authFile is the path of a file as containers-auth.json(5) describes it, which may be missing.
type authFile string

// Resolve implements authn.Keychain: the longest key that is the repository, a part of its path or its registry.
func (path authFile) Resolve(target authn.Resource) (authn.Authenticator, error) {
	data, err := os.ReadFile(string(path))
	if errors.Is(err, fs.ErrNotExist) {
		return authn.Anonymous, nil
	}
	var saved struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err == nil {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil {
		return nil, fmt.Errorf("read credentials: %s: %w", path, err)
	}
	for key := strings.TrimPrefix(target.String(), "index."); ; {
		if found, ok := saved.Auths[key]; ok {
			return authn.FromConfig(found), nil
		}
		end := strings.LastIndexByte(key, '/')
		if end < 0 {
			return authn.Anonymous, nil
		}
		key = key[:end]
	}
}
