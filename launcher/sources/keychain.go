package sources

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/credentials"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"
)

// savedCredentials are those of `docker login` and `skopeo login`, which without XDG_RUNTIME_DIR writes them where only
// containers-auth.json(5) says.
func savedCredentials() authn.Keychain {
	if os.Getenv("XDG_RUNTIME_DIR") != "" {
		return limited{authn.DefaultKeychain}
	}
	return limited{authn.NewMultiKeychain(authn.DefaultKeychain,
		authFile(fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid())))}
}

// helperLimit is how long a credential helper may take, which may ask a person.
const helperLimit = time.Minute

// limited is a keychain whose answer is awaited for helperLimit.
type limited struct{ authn.Keychain }

// Resolve implements authn.Keychain.
func (l limited) Resolve(target authn.Resource) (authn.Authenticator, error) {
	type answer struct {
		found authn.Authenticator
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		found, err := l.Keychain.Resolve(target)
		answers <- answer{found, err}
	}()
	select {
	case a := <-answers:
		return a.found, a.err
	case <-time.After(helperLimit):
		return nil, fmt.Errorf("credentials for %s: no answer within %s", target.RegistryStr(), helperLimit)
	}
}

// authFile is the path of a file as containers-auth.json(5) describes it, which may be missing.
type authFile string

// Resolve implements authn.Keychain: what the longest key has that is the repository, a part of its path
// or its registry. The registry's credential helper comes before its key.
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
		found, end := saved.AuthConfigs[key], strings.LastIndexByte(key, '/')
		if helper := saved.CredentialHelpers[key]; end < 0 && helper != "" {
			if found, err = credentials.NewNativeStore(saved, helper).Get(key); err != nil {
				return nil, fmt.Errorf("ask credential helper %s of %s: %w", helper, path, err)
			}
		}
		switch {
		case !isEmpty(found):
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

// isEmpty reports whether an entry has no credentials: those that a helper keeps are listed so.
func isEmpty(c types.AuthConfig) bool {
	c.ServerAddress = ""
	return c == types.AuthConfig{}
}
