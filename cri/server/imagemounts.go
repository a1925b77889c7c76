package server

import (
	"context"
	"fmt"
	"os"

	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/cri/translate"

	securejoin "github.com/cyphar/filepath-securejoin"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mountImages mounts the images that a container has as volumes in dir, and returns them by their mounts' targets. They
// stay until the container has started: sandboxes.Decompose unmounts them, also after an error.
func (s *Server) mountImages(
	ctx context.Context, dir string, mounts []*runtimeapi.Mount,
) (map[string]translate.MountedImage, error) {
	mounted := make(map[string]translate.MountedImage)
	for i, m := range mounts {
		if m.GetImage() == nil {
			continue
		}
		one, err := s.mountImage(ctx, dir, fmt.Sprintf("image-%d", i), m)
		if err != nil {
			return nil, fmt.Errorf("mount of an image at %s: %w", m.GetContainerPath(), err)
		}
		mounted[m.GetContainerPath()] = one
	}
	return mounted, nil
}

func (s *Server) mountImage(
	ctx context.Context, dir, name string, m *runtimeapi.Mount,
) (translate.MountedImage, error) {
	layers, err := s.imageOf(m.GetImage().GetImage())
	if err != nil {
		return translate.MountedImage{}, err
	}
	var roots []string
	for _, layer := range layers {
		roots = append(roots, layer.Rootfs())
	}
	root, err := sandboxes.MountImage(ctx, dir, name, roots)
	if err != nil {
		return translate.MountedImage{}, err
	}
	source, err := securejoin.SecureJoin(root, m.GetImageSubPath()) // nobody changes the links in it meanwhile
	if err == nil {
		_, err = os.Stat(source)
	}
	if err != nil {
		return translate.MountedImage{}, fmt.Errorf("image %s has no %q", layers[0].ID, m.GetImageSubPath())
	}
	return translate.MountedImage{ID: layers[0].ID, Source: source}, nil
}
