"""Operations of layers and of sampling."""
