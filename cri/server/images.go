package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"kurma.io/stager/cri/imageindex"
	"kurma.io/stager/launcher/images"
	"kurma.io/stager/manifest"
	"kurma.io/stager/signing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// storePrefix begins a reference to an image that an administrator has imported: aci/NAME[:VERSION].
const storePrefix = "aci/"

// findImage returns the image that a reference means: an ID, a tag, a digest, or aci/NAME[:VERSION]; nil for none.
func (s *Server) findImage(ref string) (*imageindex.Image, error) {
	if strings.HasPrefix(ref, storePrefix) {
		return s.findInStore(ref)
	}
	found, err := s.index.Find(ref)
	if found != nil || err != nil || !strings.HasPrefix(ref, "sha512-") {
		return found, err
	}
	// kubelet makes a container by the ID that aci/NAME:VERSION had a moment ago. The ID is worth what the name is: which
	// image it means by the keys that are trusted now.
	image, err := s.images.Get(ref)
	if errors.Is(err, images.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if found, err = s.findInStore(storePrefix + image.Versioned()); found == nil || found.ID != image.ID {
		return nil, err
	}
	return found, nil
}

// findInStore returns the image of the store that aci/NAME[:VERSION] means; nil for none. It finds images by names
// alone, and none that was pulled: that may be private.
func (s *Server) findInStore(ref string) (*imageindex.Image, error) {
	named := strings.TrimSuffix(strings.TrimPrefix(ref, storePrefix), ":latest")
	ring, err := s.daemon.KeyRing()
	if err != nil {
		return nil, err
	}
	image, err := s.images.Catalog(ring, nil).FindNamed(named)
	if errors.Is(err, images.ErrNotFound) || err == nil && (image.Manifest.Name == pulledName || image.IsLayer()) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &imageindex.Image{ID: image.ID, Tags: []string{ref}}, nil
}

// ImageStatus implements the CRI.
func (s *Server) ImageStatus(
	_ context.Context, r *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	if r.GetImage().GetImage() == "" {
		return nil, fmt.Errorf("%w: no image", errInvalid)
	}
	found, err := s.findImage(r.GetImage().GetImage())
	if err != nil || found == nil {
		return &runtimeapi.ImageStatusResponse{}, err
	}
	stored, err := s.images.List()
	if err != nil {
		return nil, err
	}
	image, err := s.describeImage(*found, stored)
	if errors.Is(err, images.ErrNotFound) {
		return &runtimeapi.ImageStatusResponse{}, nil // a pull brings it back
	}
	response := &runtimeapi.ImageStatusResponse{Image: image}
	if r.GetVerbose() && err == nil {
		var stored *images.Image
		if stored, err = s.images.Get(found.ID); err == nil {
			response.Info, err = infoOf(map[string]any{"info": map[string]any{"manifest": stored.Manifest.Raw}})
		}
	}
	return response, err
}

// ListImages implements the CRI.
func (s *Server) ListImages(
	_ context.Context, r *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	listed, err := s.listImages(r.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: listed}, err
}

// StreamImages implements the CRI.
func (s *Server) StreamImages(
	r *runtimeapi.StreamImagesRequest, stream runtimeapi.ImageService_StreamImagesServer,
) error {
	listed, err := s.listImages(r.GetFilter())
	return sendAll(listed, err, func(part []*runtimeapi.Image) error {
		return stream.Send(&runtimeapi.StreamImagesResponse{Images: part})
	})
}

func (s *Server) listImages(filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	all, err := s.imagesCalled(filter.GetImage().GetImage())
	if err != nil {
		return nil, err
	}
	stored, err := s.images.List() // all of the index, and perhaps more
	if err != nil {
		return nil, err
	}
	var listed []*runtimeapi.Image
	for _, one := range all {
		image, err := s.describeImage(one, stored)
		if err != nil {
			slog.Warn("image of the index cannot be read", "image", one.ID, "error", err)
			continue
		}
		listed = append(listed, image)
	}
	return listed, nil
}

// imagesCalled returns the image that a reference means, or for "" all of the index.
func (s *Server) imagesCalled(ref string) ([]imageindex.Image, error) {
	if ref == "" {
		return s.index.All()
	}
	found, err := s.findImage(ref)
	if err != nil || found == nil {
		return nil, err
	}
	return []imageindex.Image{*found}, nil
}

// describeImage describes an image of the index. The images of the store have been listed after the index was read.
func (s *Server) describeImage(found imageindex.Image, stored []*images.Image) (*runtimeapi.Image, error) {
	image, err := s.images.Get(found.ID)
	if err != nil {
		return nil, err
	}
	layers, err := s.images.Catalog(signing.KeyRing{}, nil).LayersAmong(stored, image)
	if err != nil {
		return nil, err
	}
	described := &runtimeapi.Image{
		Id: found.ID, RepoTags: found.Tags, RepoDigests: found.Digests, Spec: &runtimeapi.ImageSpec{Image: found.ID},
	}
	for _, layer := range layers {
		described.Size += uint64(layer.Record.Size)
	}
	document, err := manifest.DecodeImage(image.Manifest.Raw)
	if err != nil {
		return nil, err
	}
	described.Uid = &runtimeapi.Int64Value{}
	if document.App != nil {
		setUser(described, document.App.User)
	}
	return described, nil
}

// setUser sets the user as a number, or else as a name.
func setUser(image *runtimeapi.Image, user string) {
	uid, err := strconv.ParseInt(user, 10, 64)
	if err != nil {
		image.Uid, image.Username = nil, user
		return
	}
	image.Uid.Value = uid
}

// RemoveImage implements the CRI. It removes all tags of the image, and the layers that no other image has.
func (s *Server) RemoveImage(
	ctx context.Context, r *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	ref := r.GetImage().GetImage()
	if strings.HasPrefix(ref, storePrefix) {
		return nil, fmt.Errorf("%w: image %s is the administrator's", errInvalid, ref)
	}
	found, err := s.index.Find(ref)
	if err != nil {
		return nil, err
	}
	defer s.collectImages() // also if kubelet asks again, because not all was removed
	if found == nil {
		return &runtimeapi.RemoveImageResponse{}, nil
	}
	if _, err := s.images.Remove(ctx, func(all []*images.Image, imports images.Imports) ([]*images.Image, error) {
		return s.choose(all, imports, found.ID)
	}); err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// collectImages removes the files of imports and removals that could not remove them, or were killed.
func (s *Server) collectImages() {
	if _, err := s.images.Collect(); err != nil {
		slog.Error("leftovers of images stay", "error", oneLine(err))
	}
}

// choose chooses an image that no container uses, and the layers that no other image needs, nor a pull that runs. It
// removes the image from the index: when it has returned, the image may be pulled again.
func (s *Server) choose(all []*images.Image, imports images.Imports, id string) ([]*images.Image, error) {
	if err := s.checkUnused(id); err != nil {
		return nil, err
	}
	if err := s.index.Remove(id); err != nil {
		return nil, err
	}
	var chosen []*images.Image
	for _, image := range all {
		if image.ID == id {
			chosen = append(chosen, image)
		}
	}
	return append(chosen, unneeded(all, chosen, imports)...), nil
}

// unneeded returns the layers that no image needs when some have gone, nor a pull that runs.
func unneeded(all, gone []*images.Image, imports images.Imports) []*images.Image {
	return slices.DeleteFunc(images.Unneeded(all, gone), imports.Keep)
}

func (s *Server) checkUnused(id string) error {
	all, err := s.records.Containers()
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.ImageID == id || slices.Contains(c.MountedImages, id) {
			return fmt.Errorf("image %s: in use by container %s", id, c.ID)
		}
	}
	return nil
}

// ownInodes are those of an image's folder in the store and of its record.
const ownInodes = 2

// ImageFsInfo implements the CRI: the images' bytes and inodes, as they were counted when the images were imported.
// Images and containers are in one file system.
func (s *Server) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	all, err := s.images.List()
	if err != nil {
		return nil, err
	}
	var used, inodes uint64
	for _, image := range all {
		used += uint64(image.Record.Size)
		inodes += uint64(image.Record.Inodes) + ownInodes
	}
	one := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(),
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: s.config.State},
		UsedBytes: &runtimeapi.UInt64Value{Value: used}, InodesUsed: &runtimeapi.UInt64Value{Value: inodes},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: one, ContainerFilesystems: one}, nil
}

// sendAll sends what was listed in parts. One ends with the element by which it exceeds a quarter of a message: then it
// fits into a message with any element below the other three.
func sendAll[T proto.Message](all []T, err error, send func(part []T) error) error {
	for err == nil && len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && size < maxMessage/4 {
			size += proto.Size(all[n])
			n++
		}
		err = send(all[:n])
		all = all[n:]
	}
	return err
}
