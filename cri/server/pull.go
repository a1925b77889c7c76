package server

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"kurma.io/stager/cri/imageindex"
	"kurma.io/stager/launcher/daemon"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/launcher/sources"

	"github.com/google/go-containerregistry/pkg/authn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pulledName is the name of all images that are pulled: the index knows of which registries they are.
const pulledName = "pulled"

func (s *Server) cacheDir() string { return filepath.Join(s.config.State, "cache") }

// PullImage implements the CRI.
func (s *Server) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	text := r.GetImage().GetImage()
	if strings.HasPrefix(text, storePrefix) {
		return s.pullFromStore(text)
	}
	ref, err := imageindex.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: image %q: %w", errInvalid, text, err)
	}
	credentials, err := credentialsOf(r.GetAuth())
	if err != nil {
		return nil, err
	}
	fetcher := &sources.Fetcher{
		Store: s.images, Cache: s.cacheDir(), MaxSize: daemon.DefaultMaxImage,
		Insecure: s.config.InsecureRegistries, Hosts: s.config.RegistriesDirectory, Keychain: credentials,
		Name: pulledName, Memory: s.memory,
	}
	id, err := s.pull(ctx, fetcher, ref)
	s.collectImages()
	if err != nil {
		s.tally.pull(pullFailed)
		return nil, fmt.Errorf("pull %s: %w", text, err)
	}
	return &runtimeapi.PullImageResponse{ImageRef: id}, nil
}

// pull brings an image into the store and the index, and returns its ID. The registry checks the caller's credentials
// before it returns the digest, so an image that was pulled from this repository before is not pulled again.
func (s *Server) pull(ctx context.Context, fetcher *sources.Fetcher, ref imageindex.Reference) (id string, err error) {
	digest, err := fetcher.Digest(ctx, ref.Tag+ref.Digest)
	if err != nil {
		return "", err
	}
	if id, err := s.nameStored(ref, digest); id != "" || err != nil {
		if err == nil {
			s.tally.pull(pulledUnchanged)
		}
		return id, err
	}
	release, err := s.images.Importing() // the image is no leftover of a pull until the index has it
	if err != nil {
		return "", err
	}
	defer release()
	image, err := fetcher.Import(ctx, "docker://"+ref.Repository+"@"+digest)
	if err != nil {
		return "", err
	}
	if err := s.index.Add(image.ID, ref, digest); err != nil {
		return "", err
	}
	s.tally.pull(pulledAnew)
	return image.ID, nil
}

// nameStored adds a reference to the image that was pulled from the repository by that digest, and returns the image's
// ID; "" if no image was, or the store lacks a part of it. An image of another repository may need other credentials.
func (s *Server) nameStored(ref imageindex.Reference, digest string) (id string, err error) {
	release, err := s.images.Pin() // the image is not removed until the index has the reference
	if err != nil {
		return "", err
	}
	defer release()
	layers, err := s.imageOf(ref.Repository + "@" + digest)
	if err != nil {
		return "", nil //nolint:nilerr // a pull brings it back, or says what is wrong
	}
	return layers[0].ID, s.index.Add(layers[0].ID, ref, digest)
}

// pullFromStore finds an image that an operator has imported.
func (s *Server) pullFromStore(text string) (*runtimeapi.PullImageResponse, error) {
	image, err := s.findImage(text)
	if err == nil && image == nil {
		err = fmt.Errorf("image %q: %w: import it with launcher image import", text, images.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: image.ID}, nil
}

// credential is the credentials of one pull, for whatever registry it asks.
type credential authn.AuthConfig

// Resolve implements authn.Keychain.
func (c credential) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig(c)), nil
}

// credentialsOf returns the credentials of a request; without any the registry is asked anonymously.
func credentialsOf(a *runtimeapi.AuthConfig) (authn.Keychain, error) {
	c := credential{
		Username: a.GetUsername(), Password: a.GetPassword(),
		IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken(),
	}
	if c.Username == "" && a.GetAuth() != "" {
		c.Auth = a.GetAuth()
		full := authn.AuthConfig(c)
		text := fmt.Sprintf(`{"auth":%q}`, c.Auth)
		if err := full.UnmarshalJSON([]byte(text)); err != nil {
			return nil, fmt.Errorf("%w: auth is not USER:PASSWORD in base64", errInvalid)
		}
		c = credential(full)
	}
	return c, nil
}
