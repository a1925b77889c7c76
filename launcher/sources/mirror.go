package sources

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// firstAnswer asks the endpoints of a registry one after the other until one answers. A mirror may lack an image, or
// not answer at all. An error has those of all.
func firstAnswer[T any](
	ctx context.Context, ref name.Reference, all []endpoint, ask func(endpoint) (T, error),
) (answer T, err error) {
	registry := ref.Context().RegistryStr()
	for _, e := range all {
		got, failed := ask(e)
		if failed == nil {
			return got, nil
		}
		if len(all) > 1 {
			failed = fmt.Errorf("%s: %w", e.name(registry), failed)
		}
		if err == nil {
			err = failed
		} else {
			err = fmt.Errorf("%w; %w", err, failed)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if len(all) == 0 {
		err = fmt.Errorf("no host in the hosts.toml of registry %s has the capability", registry)
	}
	return answer, err
}

// endpoints returns the endpoints for the images of a registry: those that have manifests and layers, and those that
// say what a tag means.
func (f *Fetcher) endpoints(ref name.Reference) (pull, resolve []endpoint, err error) {
	all, err := endpointsOf(f.Hosts, ref.Context().RegistryStr())
	pull = slices.DeleteFunc(slices.Clone(all), func(e endpoint) bool { return !e.pull })
	resolve = slices.DeleteFunc(all, func(e endpoint) bool { return !e.resolve })
	return pull, resolve, err
}

// repositoryAt returns the repository at an endpoint.
func (e endpoint) repositoryAt(in name.Repository) (name.Repository, error) {
	if e.own {
		return in, nil
	}
	registry, err := name.NewRegistry(e.host)
	if err != nil {
		return in, err
	}
	return registry.Repo(in.RepositoryStr()), nil
}

// credentials returns those for a repository at an endpoint. The keychain of the Fetcher's user has those of the
// registry, which no mirror gets; the machine's has each host's.
func (f *Fetcher) credentials(ctx context.Context, e endpoint, in name.Repository) (authn.Authenticator, error) {
	if !e.own && f.Keychain != nil {
		return authn.Anonymous, nil
	}
	return authn.Resolve(ctx, f.keychain(), in)
}

// endpointTransport sends the requests for a repository to where its endpoint has it.
type endpointTransport struct {
	http.RoundTripper
	endpoint
	repository name.Repository
}

// RoundTrip implements http.RoundTripper. Redirects and requests for tokens go where the server says.
func (t endpointTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Host != t.repository.RegistryStr() {
		return t.RoundTripper.RoundTrip(request)
	}
	sent := request.Clone(request.Context())
	for key, values := range t.header {
		sent.Header[key] = values
	}
	rest, ofRepository := strings.CutPrefix(request.URL.Path, "/v2/"+t.repository.RepositoryStr()+"/")
	ping := request.URL.Path == "/v2/"
	if request.Response != nil || !ofRepository && !ping {
		return t.RoundTripper.RoundTrip(sent)
	}
	if ping && t.path != "/v2" { // only the repository's own paths may be there: see lateChallenge
		return &http.Response{
			Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, Request: request,
		}, nil
	}
	if t.scheme != "" {
		sent.URL.Scheme = t.scheme
	}
	if ofRepository {
		sent.URL.Path = t.path + "/" + t.repository.RepositoryStr() + "/" + rest
		if t.namespace != "" {
			query := sent.URL.Query()
			query.Set("ns", t.namespace)
			sent.URL.RawQuery = query.Encode()
		}
	}
	return t.RoundTripper.RoundTrip(sent)
}

// digestAt asks an endpoint what Digest asks for.
func (f *Fetcher) digestAt(ctx context.Context, e endpoint, ref name.Reference) (string, error) {
	r, err := f.connect(ctx, e, ref)
	if err != nil {
		return "", err
	}
	defer r.client.CloseIdleConnections()
	if digest, ok := r.headManifest(ctx, ref.Identifier()); ok {
		return digest, nil
	}
	found, file, err := f.getManifest(ctx, r, ref.Identifier())
	if err != nil {
		return "", err
	}
	return found.Digest.String(), file.Close()
}

// byDigest returns the reference by which the endpoints that have manifests are asked: by a digest, if one of them may
// not say what a tag means.
func (f *Fetcher) byDigest(ctx context.Context, ref name.Reference, pull, resolve []endpoint) (name.Reference, error) {
	_, isTag := ref.(name.Tag)
	if !isTag || !slices.ContainsFunc(pull, func(e endpoint) bool { return !e.resolve }) {
		return ref, nil
	}
	digest, err := firstAnswer(ctx, ref, resolve, func(e endpoint) (string, error) { return f.digestAt(ctx, e, ref) })
	if err != nil {
		return nil, err
	}
	return ref.Context().Digest(digest), nil
}
