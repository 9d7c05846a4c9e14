import os

# before anything imports pygame: no window, no sound device
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"

from hypothesis import settings

settings.register_profile("dgvf", deadline=None)  # the first example pays for imports and caches
settings.load_profile("dgvf")
