package sources

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// The credentials of skopeo login are those of the longest key, and a file that is missing has none.
func TestCredentialsOfAnAuthFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(path, []byte(`{"auths": {"example.com": {"auth": "YTpi"}, "example.com/team/app": {"auth": "Yzpk"}, "docker.io": {"auth": "ZTpm"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"example.com/x/y": "a:b", "example.com/team/app": "c:d", "example.com/team/apple": "a:b", "app": "e:f", "example.org/x": ":"} {
		repository, err := name.NewRepository(text)
		if err != nil {
			t.Fatal(err)
		}
		for file, want := range map[authFile]string{authFile(path): want, authFile(path + ".none"): ":"} {
			found, err := file.Resolve(repository)
			if err != nil {
				t.Fatal(err)
			}
			c, err := found.Authorization()
			if err != nil || c.Username+":"+c.Password != want {
				t.Errorf("%s: %s:%s, %v, want %s", text, c.Username, c.Password, err, want)
			}
		}
	}
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := authFile(path).Resolve(authn.Resource(name.MustParseReference("app").Context())); err == nil {
		t.Errorf("a damaged file: %v", found)
	}
}
