package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/docker/cli/cli/config"
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

// Resolve implements authn.Keychain: the longest key that is the repository, a part of its path or its
// registry, else what the registry's credential helper answers.
func (path authFile) Resolve(target authn.Resource) (authn.Authenticator, error) {
	file, err := os.Open(string(path))
	if errors.Is(err, fs.ErrNotExist) {
		return authn.Anonymous, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	saved, err := config.LoadFromReader(file)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %s: %w", path, err)
	}
	for key := strings.TrimPrefix(target.String(), "index."); ; {
		found, ok := saved.AuthConfigs[key]
		end := strings.LastIndexByte(key, '/')
		if !ok && end < 0 && (saved.CredentialHelpers[key] != "" || saved.CredentialsStore != "") {
			if found, err = saved.GetAuthConfig(key); err != nil {
				return nil, fmt.Errorf("read credentials: %s: %w", path, err)
			}
			ok = found.Username != "" || found.IdentityToken != ""
		}
		switch {
		case ok:
			return authn.FromConfig(authn.AuthConfig{
				Username: found.Username, Password: found.Password, Auth: found.Auth,
				IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
			}), nil
		case end < 0:
			return authn.Anonymous, nil
		}
		key = key[:end]
	}
}
